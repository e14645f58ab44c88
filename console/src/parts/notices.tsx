// Short notices at the edge of the page.

import { createStore, useStore } from "../store";

interface Notice {
  id: number;
  text: string;
  kind: "good" | "bad";
}

const GOOD_MS = 8000;
const BAD_MS = 10_000;
const notices = createStore<Notice[]>([]);
let last = 0;

export function notify(text: string, kind: "good" | "bad" = "good"): void {
  const id = ++last;
  notices.set([...notices.get().slice(-3), { id, text, kind }]);
  setTimeout(() => dismiss(id), kind === "good" ? GOOD_MS : BAD_MS);
}

function dismiss(id: number): void {
  notices.set(notices.get().filter((notice) => notice.id !== id));
}

export function Notices() {
  const shown = useStore(notices);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown.map((notice) => (
        <div key={notice.id} class={`notice ${notice.kind}`}>
          <span>{notice.text}</span>
          <button type="button" class="button quiet small" aria-label="Dismiss" onClick={() => dismiss(notice.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
