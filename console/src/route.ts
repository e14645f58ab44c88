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

export function go(...segments: (string | number)[]): void {
  location.hash = to(...segments);
}
