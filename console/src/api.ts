// Calls to the server of this page, with the key from the sign-in.

import { createStore } from "./store";

const KEY_PLACE = "mainstem.key"; // in session storage, which ends with the tab

export class ApiError extends Error {
  constructor(
    readonly status: number, // 0: no response
    readonly code: string,
    message: string,
    readonly detail?: unknown,
  ) {
    super(message);
  }
}

/** Why the server did not answer the last request; empty if it did. */
export const outage = createStore("");
/** How many deletions are under way. What they delete is not polled meanwhile. */
export const deletions = createStore(0);
/** Whether the user must enter a key first. */
export const needsKey = createStore(false);

let key = sessionStorage.getItem(KEY_PLACE) ?? "";

export function signIn(given: string): void {
  key = given;
  sessionStorage.setItem(KEY_PLACE, given);
}

export function signOut(): void {
  key = "";
  sessionStorage.removeItem(KEY_PLACE);
}

export function hasKey(): boolean {
  return key !== "";
}

/** Whether this tab uses a key of the server, by its id. */
export function usesKey(id: string): boolean {
  return key.startsWith(`mainstem_${id}_`);
}

export function authorised(headers: Record<string, string> = {}): Record<string, string> {
  return key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
}

async function call<T>(method: string, path: string, body?: string | Uint8Array, signal?: AbortSignal): Promise<T> {
  // The page may call this server only, so the server forwards what another broker must answer.
  const headers = authorised({ Accept: "application/json", "Mainstem-Forward": "true" });
  if (body !== undefined) headers["Content-Type"] = typeof body === "string" ? "application/json" : "application/octet-stream";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body as BodyInit | undefined,
      signal,
      cache: "no-store",
    });
  } catch (failure) {
    if (signal?.aborted) throw failure;
    throw unanswered("The server does not respond.");
  }
  if (!response.ok) throw await refusal(response, headers);
  outage.set("");
  return (await response.json()) as T;
}

function unanswered(why: string): ApiError {
  outage.set(why);
  return new ApiError(0, "offline", why);
}

/** The error of a response, to a request with these headers. */
export async function refusal(response: Response, sent: Record<string, string>): Promise<ApiError> {
  const { error, message } = (await response.json().catch(() => ({}))) as {
    error?: { code: string; message: string; detail?: { replay_progress?: number } };
    message?: string; // of the schema registry
  };
  const progress = error?.detail?.replay_progress ?? 1;
  if (response.status === 503 && progress < 1) return unanswered(`The server starts: ${Math.floor(progress * 100)} % of its log is replayed.`);
  outage.set("");
  // A request that was sent before the tab signed in tells nothing about its key.
  if (response.status === 401 && sent["Authorization"] === authorised()["Authorization"]) needsKey.set(true);
  if (!error) return new ApiError(response.status, "unknown", message ?? `The server returned ${response.status}.`);
  return new ApiError(response.status, error.code, error.message, error.detail);
}

export const get = <T>(path: string, signal?: AbortSignal) => call<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal) =>
  call<T>("POST", path, JSON.stringify(body), signal);
/** JSON text that is sent unchanged. */
export const postText = <T>(path: string, body: string) => call<T>("POST", path, body);
export const postBytes = <T>(path: string, body: Uint8Array) => call<T>("POST", path, body);
export const put = <T>(path: string, body: unknown) => call<T>("PUT", path, JSON.stringify(body));
export const patch = <T>(path: string, body: unknown) => call<T>("PATCH", path, JSON.stringify(body));
export async function del<T>(path: string): Promise<T> {
  deletions.set(deletions.get() + 1);
  try {
    return await call<T>("DELETE", path);
  } finally {
    deletions.set(deletions.get() - 1);
  }
}

/** A path with its names encoded and its query: path`/v0/topics/${name}` */
export function path(parts: TemplateStringsArray, ...names: (string | number)[]): string {
  return parts.reduce((all, part, at) => all + encodeURIComponent(String(names[at - 1])) + part);
}

export function query(values: Record<string, string | number | boolean | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  if (!given.length) return "";
  return "?" + given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
}

export function explained(failure: unknown): string {
  if (failure instanceof ApiError && failure.status === 403) return `Access denied: ${failure.message}.`;
  return failure instanceof Error ? failure.message : String(failure);
}
