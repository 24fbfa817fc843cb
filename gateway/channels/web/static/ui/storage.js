/** Storage of this page in the browser: strings under `shoal.<key>`, in memory only where storage is refused. */

const PREFIX = "shoal.";
const memory = new Map();

export function read(key) {
  try {
    return localStorage.getItem(PREFIX + key) ?? memory.get(key) ?? null;
  } catch {
    return memory.get(key) ?? null;
  }
}

export function write(key, value) {
  try {
    localStorage.setItem(PREFIX + key, value);
    memory.delete(key);
  } catch {
    memory.set(key, value);
  }
}

export function drop(key) {
  memory.delete(key);
  try {
    localStorage.removeItem(PREFIX + key);
  } catch {
    // Nothing was stored.
  }
}

/** Every key that starts with `start`. */
export function keys(start) {
  const found = new Set(memory.keys());
  try {
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(PREFIX)) found.add(key.slice(PREFIX.length));
    }
  } catch {
    // Memory is all there is.
  }
  return [...found].filter((key) => key.startsWith(start));
}

/** Forgets what belongs to a person; how the page looks stays. */
export function forgetPerson() {
  for (const key of keys("")) if (key !== "theme") drop(key);
}
