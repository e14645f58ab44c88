// What the key that signed in may do. The server decides; this only says so beforehand.

import { createStore, useStore } from "./store";
import type { KeyRights } from "./types";

export type Scope = "read" | "write" | "delete" | "admin";

export const rights = createStore<KeyRights>({
  authentication: false,
  scopes: ["read", "write", "delete", "admin"],
  prefixes: [],
});

/** Why an action is not to be had, in words; nothing if it is. */
export function useLacking(...needed: Scope[]): string | undefined {
  const held = useStore(rights);
  const missing = needed.filter((scope) => !held.scopes.includes(scope));
  return missing.length ? `this key lacks the scope ${missing.join("+")}` : undefined;
}
