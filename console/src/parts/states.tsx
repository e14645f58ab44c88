// What a screen shows while it has nothing to show: it loads, it failed, or there is nothing yet.

import type { ComponentChildren } from "preact";
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

/** The content once there is some; before that, what stands in its place. */
export function Settled<T>(props: { of: Polled<T>; rows?: number; children: (data: T) => ComponentChildren }) {
  const { data, error, reload } = props.of;
  if (data !== undefined) return <>{props.children(data)}</>;
  if (error) return <Failed message={error.message} onRetry={reload} />;
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

/** A line for the terminal, with a button that copies it. */
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
    notify("The browser does not let this page copy: it needs localhost or https.", "bad");
  }
}
