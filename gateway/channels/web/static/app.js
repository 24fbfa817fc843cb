/** Joins the parts of the chat page. */

import { Attachments } from "./ui/attachments.js";
import { ChatList, Drawer } from "./chat/chats.js";
import { Composer } from "./ui/composer.js";
import { Connection } from "./chat/connection.js";
import { Conversations } from "./chat/conversations.js";
import { oncePerFrame, setText, toast } from "./ui/dom.js";
import { Scroll } from "./ui/scroll.js";
import { drop, forgetPerson, read, write } from "./ui/storage.js";
import { Transcript } from "./chat/transcript.js";

/** A connection that comes back within this time is not worth a word. */
const BANNER_AFTER_MS = 1_000;
const ANNOUNCED_CHARACTERS = 2_000;
const TOKEN = /^#token=(.+)$/;

const one = (selector) => document.querySelector(selector);

/** The token from the address, which then loses it, or else the stored one. */
function findToken() {
  const [, given] = location.hash.match(TOKEN) ?? [];
  if (given) {
    write("token", decodeURIComponent(given));
    history.replaceState(history.state, "", location.pathname);
  }
  return read("token");
}

function askForToken(message = "") {
  one("#app").hidden = true;
  one("#login").hidden = false;
  one("#login-message").textContent = message;
  one("#login input").focus();
}

function startOver(token) {
  forgetPerson();
  if (token) write("token", token);
  history.replaceState(null, "", location.pathname);
  location.reload();
}

function startChats(token) {
  const repaint = oncePerFrame(() => {
    transcript.paint();
    composer.paint();
    list.paint();
    paintHead();
  });

  const conversations = new Conversations({
    changed(chat, entry) {
      if (chat && chat === conversations.current) transcript.note(entry);
      repaint();
    },
    spoken(chat, reply) {
      if (chat !== conversations.current) return;
      scroll.tellNews();
      one("#announcer").textContent = `Shoal: ${reply.text.slice(0, ANNOUNCED_CHARACTERS)}`;
    },
    welcomed({ commands = [], files, file_bytes: bytes }) {
      composer.offer(commands);
      attachments.limit(files, bytes);
      clearTimeout(bannerTimer);
      bannerTimer = null;
      one("#banner").hidden = true;
      reveal();
    },
    lost() {
      bannerTimer ??= setTimeout(showBanner, BANNER_AFTER_MS);
    },
    stranger: () => startOver(token),
    refused(message) {
      drop("token");
      askForToken(message);
    },
    trouble: toast,
  });
  let bannerTimer = setTimeout(showBanner, BANNER_AFTER_MS);

  const scroll = new Scroll(one("#scroller"), one("#transcript"), one("#jump"), () => conversations.loadOlder());
  const onCard = (action) => (...given) => {
    conversations[action](conversations.current, ...given);
    composer.focus();
  };
  const transcript = new Transcript(one("#transcript"), scroll, {
    say(text) {
      send(text);
      composer.focus();
    },
    retry: onCard("retry"),
    discard: onCard("discard"),
    approve: onCard("approve"),
    withdraw: onCard("withdraw"),
  });
  const attachments = new Attachments(one("#dock"), one("main"), repaint);
  const composer = new Composer(one("#dock"), {
    send,
    attachments,
    stop: (turn) => conversations.stop(turn),
    reveal: (entry) => transcript.reveal(entry),
  });
  const drawer = new Drawer();
  const list = new ChatList(one("#chats"), conversations, (chat) => go(chat));

  /** Not before there is news of the connection: until then the token may be a wrong one. */
  function reveal() {
    if (!one("#app").hidden) return;
    one("#app").hidden = false;
    scroll.toEnd();
    composer.focus();
  }

  function showBanner() {
    reveal();
    one("#banner").textContent = navigator.onLine
      ? "Connection lost. Reconnecting…"
      : "You are offline. What you write is sent when you are back.";
    one("#banner").hidden = false;
  }

  function paintHead() {
    const chat = conversations.current;
    const title = chat.title || "New chat";
    const news = conversations.list().filter((other) => conversations.unread(other)).length;
    setText(one("#title"), title);
    document.title = `${news ? `(${news}) ` : ""}${title} · Shoal`;
    one("#empty").hidden = !chat.empty || !chat.loaded;
    one("#older").hidden = !chat.more;
  }

  function send(text, media = []) {
    scroll.toEnd();
    conversations.send(text, media);
  }

  /** Puts a chat on the screen. */
  function show(chat) {
    conversations.show(chat);
    write("chat", chat.id);
    transcript.show(chat);
    attachments.show(chat);
    composer.show(chat);
    repaint();
  }

  /** The same for a person's wish, which the browser's "back" can undo. */
  function go(chat) {
    drawer.close();
    if (chat !== conversations.current) {
      history.pushState({ chat: chat.id }, "");
      show(chat);
    }
    composer.focus();
  }

  one("#new-chat").addEventListener("click", () => go(conversations.blank()));
  one("#new-chat-top").addEventListener("click", () => go(conversations.blank()));
  one("#prompts").addEventListener("click", ({ target }) => target.matches("button") && send(target.textContent));
  one("#sign-out").addEventListener("click", () => startOver());
  addEventListener("popstate", ({ state }) => state?.chat && show(conversations.chat(state.chat)));

  conversations.start((events) => new Connection(token, events));
  const last = history.state?.chat ?? read("chat");
  show(last ? conversations.chat(last) : conversations.blank());
  history.replaceState({ chat: conversations.current.id }, "");
}

/** iOS lays the keyboard over the page instead of making it shorter. */
function makeRoomForKeyboard() {
  const view = window.visualViewport;
  view?.addEventListener("resize", () => {
    const covered = innerHeight - view.height > 80 && view.scale === 1;
    document.documentElement.style.setProperty("--height", covered ? `${view.height}px` : "100dvh");
    if (covered) scrollTo(0, 0);
  });
}

one("#login").addEventListener("submit", (event) => {
  event.preventDefault();
  write("token", one("#login input").value.trim());
  location.reload();
});
addEventListener("hashchange", () => {
  if (!TOKEN.test(location.hash)) return;
  findToken();
  location.reload();
});
// Signed in or out in another tab.
addEventListener("storage", ({ key }) => key === "shoal.token" && location.reload());
makeRoomForKeyboard();

const token = findToken();
if (token) startChats(token);
else askForToken();
