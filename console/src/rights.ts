// The permissions of the current key. The server enforces them; the console only shows them.

import { get, needsKey, signIn } from "./api";
import { createStore, useStore } from "./store";
import type { KeyRights } from "./types";

export type Scope = "read" | "write" | "delete" | "admin";

export const rights = createStore<KeyRights>({
  authentication: false,
  scopes: ["read", "write", "delete", "admin"],
  prefixes: [],
});

/** Why an action is unavailable; undefined if it is available. */
export function useLacking(...needed: Scope[]): string | undefined {
  const held = useStore(rights);
  const missing = needed.filter((scope) => !held.scopes.includes(scope));
  return missing.length ? `this key lacks the scope ${missing.join("+")}` : undefined;
}

/** Use a key from now on, in this tab. */
export async function enter(key: string): Promise<void> {
  signIn(key);
  rights.set(await get<KeyRights>("/v0/key"));
  needsKey.set(false);
}
