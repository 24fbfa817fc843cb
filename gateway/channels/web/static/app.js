/** Joins the parts of the chat page. */

import { About } from "./about/about.js";
import { addressOf, chatOfAddress } from "./ui/addresses.js";
import { linkToOrigin, paintLinksToOrigin } from "./answers/branches.js";
import { Attachments } from "./ui/attachments.js";
import { ChatList, Drawer } from "./list/chats.js";
import { Composer } from "./ui/composer.js";
import { FirstRunCard } from "./ui/first-run.js";
import { Connection } from "./chat/connection.js";
import { Conversations } from "./chat/conversations.js";
import { oncePerFrame, setText, toast } from "./ui/dom.js";
import { Microphone } from "./chat/microphone.js";
import { KillWorker } from "./ui/kill-worker.js";
import { saveChat } from "./list/save.js";
import { Scroll } from "./ui/scroll.js";
import { modelCommand, ModelPicker } from "./list/model-picker.js";
import { Notifier } from "./list/notify.js";
import { offerUndo } from "./ui/undo.js";
import { drop, forgetPerson, read, write } from "./ui/storage.js";
import { Search } from "./list/search.js";
import { SettingsOpener } from "./list/settings-opener.js";
import { readSteps } from "./chat/work-log.js";
import { Transcript } from "./chat/transcript.js";
import { Steering } from "./chat/steer.js";

/** A connection that comes back within this time is not worth a word. */
const BANNER_AFTER_MS = 1_000;
const ANNOUNCED_CHARACTERS = 2_000;
const DEMO_PROMPTS = ["Tell me a long story", "Remind me in one minute to stretch", "What can you do?"];
const TOKEN = /^#token=(.+)$/;

const one = (selector) => document.querySelector(selector);

/** The token of a link, which the address then loses. */
function tokenOfLink() {
  const [, given] = location.hash.match(TOKEN) ?? [];
  if (!given) return null;
  history.replaceState(history.state, "", location.pathname);
  try {
    return decodeURIComponent(given);
  } catch {
    return given;
  }
}

/**
 * Asks before a link makes somebody else of the person: it may be anybody's link, and all that is written after it would
 * be read by them. The gateway says whose the token is; a new token of the same person is taken without a question.
 */
function askForSwitch(stored, given) {
  const known = read("principal");
  const ask = one("#switch");
  const probe = new Connection(given, {
    welcomed({ principal }) {
      probe.close();
      if (known === null || principal === known) return signIn(given);
      for (const node of ask.querySelectorAll(".linked")) node.textContent = principal;
      for (const node of ask.querySelectorAll(".known")) node.textContent = known;
      one("#switch-go").onclick = () => startOver(given);
      one("#switch-stay").onclick = stay;
      ask.hidden = false;
      one("#switch-stay").focus();
    },
    refused() {
      stay();
      toast("The token of that link is not accepted. You are signed in as before.");
    },
    // Too many tokens were tried from here: nobody can say now whose this one is.
    frame({ type, message }) {
      if (type !== "error") return;
      probe.close();
      stay();
      toast(message);
    },
    lost() {},
  });
  function stay() {
    ask.hidden = true;
    startChats(stored);
  }
}

function signIn(token) {
  write("token", token);
  startChats(token);
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
  history.replaceState(null, "", "/");
  location.reload();
}

function startChats(token) {
  const repaint = oncePerFrame(() => {
    transcript.paint();
    paintLinksToOrigin(one("#transcript"), (id) => conversations.has(id));
    composer.paint();
    killWorker.paint(conversations.current.working);
    list.paint();
    paintHead();
  });

  const conversations = new Conversations({
    changed(chat, entry) {
      if (chat && chat === conversations.current) transcript.note(entry);
      repaint();
    },
    spoken(chat, reply, telling) {
      if (telling) notifier.tell(chat, reply.text, () => go(chat));
      if (chat !== conversations.current) return;
      scroll.tellNews();
      one("#announcer").textContent = `Shoal: ${reply.text.slice(0, ANNOUNCED_CHARACTERS)}`;
    },
    welcomed({ commands = [], files, file_bytes: bytes, first_run: offered, kill = false, features = [], presets = [] }) {
      able = features;
      picker.offer(presets);
      offerModels(offered);
      offerDemo(kill);
      composer.offer(commands);
      steering.offer(commands);
      list.offer(features);
      search.offer(features);
      about.offer(features);
      settings.offer(features);
      attachments.limit(files, bytes);
      microphone.offer(features);
      clearTimeout(bannerTimer);
      bannerTimer = null;
      one("#banner").hidden = true;
      reveal();
    },
    lost() {
      bannerTimer ??= setTimeout(showBanner, BANNER_AFTER_MS);
    },
    deleted(chat, seconds) {
      if (chat === conversations.current) open(conversations.blank());
      const over = () => conversations.forget(chat);
      if (!seconds) return over();
      const undo = () => conversations.restore(chat);
      offerUndo(`“${chat.title || "New chat"}” is deleted.`, seconds, { undo, over });
    },
    branched: (chat) => go(chat),
    found: (frame) => search.show(frame),
    stranger: () => startOver(token),
    refused(message) {
      clearTimeout(bannerTimer);
      drop("token");
      askForToken(message);
    },
    trouble: toast,
  });
  let bannerTimer = setTimeout(showBanner, BANNER_AFTER_MS);
  let firstRun = null;
  /** What the gateway can do. */
  let able = [];

  const scroll = new Scroll(one("#scroller"), one("#transcript"), one("#jump"), () => conversations.loadOlder());
  const onCard = (action) => (...given) => {
    conversations[action](conversations.current, ...given);
    composer.focus();
  };
  const steering = new Steering({
    say: (text) => send(text),
    edit: (text) => composer.edit(text),
  });
  const transcript = new Transcript(one("#transcript"), scroll, {
    say(text) {
      send(text);
      composer.focus();
    },
    can: (feature) => able.includes(feature),
    rate: (entry, rating) => conversations.rate(conversations.current, entry, rating),
    branch: (entry) => conversations.branch(conversations.current, entry),
    origin: (id) => linkToOrigin(conversations.chat(id), go),
    steps: (turn) => readSteps(conversations.current, turn),
    retry: onCard("retry"),
    discard: onCard("discard"),
    approve: onCard("approve"),
    takeBack({ call }) {
      send(`/always off ${call}`);
      composer.focus();
    },
    withdraw: onCard("withdraw"),
    again(reply) {
      const texts = conversations.current.answeredBy(reply).map((entry) => entry.text).filter(Boolean);
      if (texts.length) send(texts.join("\n\n"));
      composer.focus();
    },
  }, steering);
  const attachments = new Attachments(one("#dock"), one("#app main"), repaint);
  const composer = new Composer(one("#dock"), {
    send,
    attachments,
    stop: (turn) => conversations.stop(turn),
    takeLast: () => conversations.takeLast(),
    reveal: (entry) => transcript.reveal(entry),
  });
  const microphone = new Microphone(one("#microphone"), (file) => attachments.add([file]));
  const notifier = new Notifier(one("#notify"));
  const killWorker = new KillWorker(one("#dock"), () => conversations.killWorker());
  const picker = new ModelPicker(one("#model"), (name) => {
    conversations.current.preset = name;
    send(modelCommand(name));
    composer.focus();
  });
  const drawer = new Drawer();
  const list = new ChatList(one("#chats"), conversations, {
    pick: (chat) => go(chat),
    rename: (chat, title) => conversations.rename(chat, title),
    pin: (chat, pinned) => conversations.pin(chat, pinned),
    save: saveChat,
    remove: (chat) => conversations.remove(chat),
  });
  const about = new About();
  const settings = new SettingsOpener({
    notifier,
    signOut: () => startOver(),
    home: () => history.replaceState({ chat: conversations.current.id }, "", address(conversations.current)),
    openChat(id, withPanel) {
      open(conversations.chat(id));
      if (withPanel) about.open(conversations.current);
    },
  });
  const search = new Search((text) => conversations.search(text), (id) => go(conversations.chat(id)));

  /** Not before there is news of the connection: until then the token may be a wrong one. */
  function reveal() {
    if (!one("#app").hidden) return;
    one("#app").hidden = false;
    scroll.toEnd();
    composer.focus();
  }

  function offerModels(offered) {
    if (!offered) firstRun?.node.remove();
    else if (!firstRun && !FirstRunCard.dismissed()) one("#empty").append((firstRun = new FirstRunCard()).node);
  }

  /** What the demo model does best; another model gets other prompts. */
  function offerDemo(offered) {
    killWorker.offer(offered);
    if (offered) for (const [index, button] of one("#prompts").querySelectorAll("button").entries()) setText(button, DEMO_PROMPTS[index]);
    repaint();
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
    const news = conversations.list().filter((other) => conversations.calls(other)).length;
    setText(one("#title"), title);
    picker.paint(chat);
    about.paint(chat);
    document.title = `${news ? `(${news}) ` : ""}${title} · Shoal`;
    one("#empty").hidden = !chat.empty || !chat.loaded;
    // An address may name a chat that was deleted.
    const known = conversations.isBlank(chat) || chat.deleted;
    setText(one("#empty h2"), known ? "What can I do for you?" : "There is nothing in this chat");
    one("#older").hidden = !chat.more;
    one("#gone").hidden = !chat.cut;
  }

  function send(text, media = []) {
    scroll.toEnd();
    conversations.send(text, media);
    history.replaceState({ chat: conversations.current.id }, "", addressOf(conversations.current));
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

  function address(chat) {
    return conversations.isBlank(chat) ? "/" : addressOf(chat);
  }

  /** Puts another chat in the place of one that is gone. */
  function open(chat) {
    history.replaceState({ chat: chat.id }, "", address(chat));
    show(chat);
  }

  /** The same for a person's wish, which the browser's "back" can undo. */
  function go(chat) {
    drawer.close();
    if (chat !== conversations.current) {
      history.pushState({ chat: chat.id }, "", address(chat));
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
  const last = chatOfAddress() ?? history.state?.chat ?? read("chat");
  open(last ? conversations.chat(last) : conversations.blank());
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
  if (TOKEN.test(location.hash)) location.reload();
});
// Signed in or out in another tab.
addEventListener("storage", ({ key }) => key === "shoal.token" && location.reload());
makeRoomForKeyboard();

const given = tokenOfLink();
const stored = read("token");
if (given && stored && given !== stored) askForSwitch(stored, given);
else if (given ?? stored) signIn(given ?? stored);
else askForToken();
