/** Saves a chat as a file. */

import { read } from "../ui/storage.js";
import { make, toast } from "../ui/dom.js";

/** `form` is md or json. */
export async function saveChat(chat, form) {
  const headers = { Authorization: `Bearer ${read("token")}` };
  const answer = await fetch(`/export/${chat.id}?format=${form}`, { headers }).catch(() => null);
  if (!answer?.ok) return toast("The chat could not be saved just now. Please try again in a moment.");
  const address = URL.createObjectURL(await answer.blob());
  const name = (chat.title || "Chat").replace(/[\\/:*?"<>|\s]+/g, " ").trim();
  make("a", { href: address, download: `${name}.${form}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
