/** Files of messages: sending them, and showing those that lines carry. The token goes in a header, never in a URL. */

import { icon, make, toast } from "./dom.js";
import { read } from "./storage.js";

const AWAY = "The file could not be sent. Is the connection there?";
const shown = new Map();

/** Sends a file for a chat; resolves to its media frame. `progress(share)` is called with the share that was sent. */
export function upload(chat, file, progress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open("POST", `/media/${chat}`);
    request.setRequestHeader("Authorization", `Bearer ${read("token")}`);
    request.setRequestHeader("Shoal-File-Name", encodeURIComponent(file.name));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = ({ loaded, total }) => progress(total ? loaded / total : 0);
    request.onload = () => {
      if (request.status === 201) resolve(request.response);
      else reject(new Error(request.response?.detail ?? AWAY));
    };
    request.onerror = () => reject(new Error(AWAY));
    request.onabort = () => reject(new Error(""));
    request.send(file);
  });
  return { done, stop: () => request.abort() };
}

/** The address of a file in this page; asked for once. */
function address({ path }) {
  if (!shown.has(path)) {
    const asked = fetch(path, { headers: { Authorization: `Bearer ${read("token")}` } }).then(async (answer) => {
      if (!answer.ok) throw new Error(answer.status === 404 ? "This file is not there any more." : AWAY);
      return URL.createObjectURL(await answer.blob());
    });
    asked.catch(() => shown.delete(path));
    shown.set(path, asked);
  }
  return shown.get(path);
}

async function keep(file) {
  try {
    make("a", { href: await address(file), download: file.name }).click();
  } catch (error) {
    toast(error.message);
  }
}

/** 1.2 MB, 34 kB. */
export function size(bytes) {
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.max(1, Math.round(bytes / 1e3))} kB`;
}

function chip(file) {
  const words = make("span", { className: "name" }, file.name);
  const about = make("span", { className: "muted" }, `${file.about}, ${size(file.size)}`);
  const properties = { type: "button", className: "file", title: `Download ${file.name}`, onclick: () => keep(file) };
  return make("button", properties, icon("file"), words, about);
}

function picture(file) {
  const image = make("img", { alt: file.name, loading: "lazy" });
  const properties = { type: "button", className: "picture", title: `Download ${file.name}`, onclick: () => keep(file) };
  const node = make("button", properties, image);
  address(file).then(
    (url) => { image.src = url; },
    () => node.replaceWith(chip(file)),
  );
  return node;
}

/** A recording: loaded when somebody wants to hear it. */
function recording(file) {
  const words = [make("span", { className: "name" }, file.name), make("span", { className: "muted" }, size(file.size))];
  const properties = { type: "button", className: "file", title: `Play ${file.name}` };
  const node = make("button", { ...properties, onclick: play }, icon("play"), ...words);
  async function play() {
    try {
      const player = make("audio", { controls: true, autoplay: true, src: await address(file), ariaLabel: file.name });
      node.replaceWith(player);
      player.focus();
    } catch (error) {
      toast(error.message);
    }
  }
  return node;
}

function shape(file) {
  if (file.image) return picture(file);
  return file.type.startsWith("audio/") ? recording(file) : chip(file);
}

/** The files of a line, or nothing. */
export function mediaList(files) {
  return files.length ? [make("div", { className: "media" }, ...files.map(shape))] : [];
}
