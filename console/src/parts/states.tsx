// The states of a screen without content: loading, failed or empty.

import type { ComponentChildren } from "preact";
import { explained } from "../api";
import { notify } from "./notices";
import type { Polled } from "../poll";

export function Loading(props: { rows?: number }) {
  return (
    <div class="loading" role="status" aria-label="Loading">
      {Array.from({ length: props.rows ?? 4 }, (_, at) => (
        <div key={at} class="loading-row" />
      ))}
    </div>
  );
}

export function Failed(props: { message: string; onRetry?: () => void }) {
  return (
    <div class="failed" role="alert">
      <p>{props.message}</p>
      {props.onRetry && (
        <button type="button" class="button" onClick={props.onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Shows the content once it is loaded, and the state before. */
export function Settled<T>(props: { of: Polled<T>; rows?: number; children: (data: T) => ComponentChildren }) {
  const { data, error, reload } = props.of;
  if (data !== undefined) return <>{props.children(data)}</>;
  if (error) return <Failed message={explained(error)} onRetry={reload} />;
  return <Loading rows={props.rows} />;
}

export function Empty(props: { title: string; children?: ComponentChildren; commands?: string[] }) {
  return (
    <div class="empty">
      <h2>{props.title}</h2>
      {props.children && <div class="empty-text">{props.children}</div>}
      {props.commands?.map((command) => <Command key={command} text={command} />)}
    </div>
  );
}

/** A shell command with a copy button. */
export function Command(props: { text: string }) {
  return (
    <div class="command">
      <pre>{props.text}</pre>
      <button type="button" class="button small" onClick={() => void copy(props.text)}>
        Copy
      </button>
    </div>
  );
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    notify("The browser does not allow this page to copy. Use localhost or https.", "bad");
  }
}
