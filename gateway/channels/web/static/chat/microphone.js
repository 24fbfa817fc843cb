/** The button that records a voice note: pressed once it begins, pressed again the note lies with the message. */

import { toast } from "../ui/dom.js";

/** What a browser can record, the most widely understood first. Safari has only the last. */
const FORMS = ["audio/ogg;codecs=opus", "audio/webm;codecs=opus", "audio/mp4"];
const LONGEST_MS = 10 * 60_000;

export class Microphone {
  #button;
  #record;
  #recorder = null;
  #asking = false;
  #limit = null;

  /** `record(file)` gets each note that was recorded. */
  constructor(button, record) {
    this.#button = button;
    this.#record = record;
    button.addEventListener("click", () => (this.#recorder ? this.#recorder.stop() : this.#begin()));
  }

  /** Only over HTTPS, or on this machine, does a browser give a page the microphone. */
  offer(features) {
    this.#button.hidden = !features.includes("voice") || !navigator.mediaDevices || !window.MediaRecorder;
  }

  async #begin() {
    if (this.#asking) return;
    this.#asking = true;
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      this.#start(stream);
    } catch (error) {
      toast(error.name === "NotAllowedError" ? "The browser does not let this page use the microphone." : "No microphone was found.");
    } finally {
      this.#asking = false;
    }
  }

  #start(stream) {
    const mimeType = FORMS.find((form) => MediaRecorder.isTypeSupported(form));
    const recorder = new MediaRecorder(stream, { mimeType, audioBitsPerSecond: 32_000 });
    const pieces = [];
    recorder.addEventListener("dataavailable", ({ data }) => pieces.push(data));
    recorder.addEventListener("stop", () => {
      clearTimeout(this.#limit);
      for (const track of stream.getTracks()) track.stop();
      this.#recorder = null;
      this.#paint();
      const type = recorder.mimeType.split(";")[0];
      const suffix = { "audio/mp4": "m4a" }[type] ?? type.split("/")[1];
      this.#record(new File(pieces, `voice.${suffix}`, { type }));
    });
    recorder.start();
    this.#recorder = recorder;
    this.#limit = setTimeout(() => recorder.stop(), LONGEST_MS);
    this.#paint();
  }

  #paint() {
    const on = this.#recorder !== null;
    this.#button.setAttribute("aria-pressed", on);
    this.#button.setAttribute("aria-label", on ? "Stop recording" : "Record a voice note");
  }
}
