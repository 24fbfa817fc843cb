/** Addresses of chats: `/c/<id>`; a chat without a message has none yet. */

const CHAT = /^\/c\/([A-Za-z0-9_-]{1,64})\/?$/;

export function addressOf(chat) {
  return `/c/${chat.id}`;
}

/** The id of the chat that the address of this page names; null without one. */
export function chatOfAddress() {
  return location.pathname.match(CHAT)?.[1] ?? null;
}
