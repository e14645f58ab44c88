// The current screen, from the part of the URL after #, e.g. #/topics/orders/messages?partition=1

import { createStore, useStore } from "./store";

export interface Place {
  segments: string[];
  values: URLSearchParams;
}

function read(): Place {
  const [plain = "", asked = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const segments = plain.split("/").filter(Boolean).map(decoded);
  return { segments, values: new URLSearchParams(asked) };
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // malformed: matches no screen
  }
}

const place = createStore<Place>(read());
addEventListener("hashchange", () => place.set(read()));

export const usePlace = (): Place => useStore(place);

/** The URL of a screen. */
export function to(...segments: (string | number)[]): string {
  return "#/" + segments.map((segment) => encodeURIComponent(String(segment))).join("/");
}

/** Put values into the URL of this screen, so that it can be shared and reloaded. Empty ones are left out. */
export function remember(values: Record<string, string>): void {
  const given = Object.entries(values).filter(([, value]) => value !== "");
  const [plain = ""] = location.hash.split("?");
  if (to(...read().segments) !== to(...place.get().segments)) return; // the URL is another screen's already
  const next = plain + (given.length ? "?" + new URLSearchParams(given).toString() : "");
  if (next !== location.hash) history.replaceState(null, "", next);
}

export function go(...segments: (string | number)[]): void {
  location.hash = to(...segments);
}
