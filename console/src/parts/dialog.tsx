// A modal dialog: Esc closes it, it traps the focus and restores it.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { explained } from "../api";
import { notify } from "./notices";

export function Dialog(props: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  action: string; // label of the button
  danger?: boolean;
  noCancel?: boolean;
  lacking?: string;
  onSubmit: () => Promise<unknown>; // the dialog closes when it resolves
}) {
  const shown = useRef<HTMLDialogElement>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const open = useRef(true);
  // Before the next key press, which belongs to the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    shown.current?.showModal();
    return () => {
      open.current = false;
      before?.focus();
    };
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (busy || props.lacking) return;
    setBusy(true);
    setProblem("");
    try {
      await props.onSubmit();
      if (open.current) props.onClose();
    } catch (failure) {
      if (!open.current) return notify(explained(failure), "bad");
      setProblem(explained(failure));
      setBusy(false);
    }
  };
  return (
    <dialog ref={shown} class="dialog" aria-label={props.title} onClose={props.onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <h2>{props.title}</h2>
        {props.children}
        <p class="problem" role="alert">
          {problem}
        </p>
        <div class="dialog-buttons">
          {!props.noCancel && (
            <button type="button" class="button" onClick={props.onClose}>
              Cancel
            </button>
          )}
          <button
            type="submit"
            class={`button ${props.danger ? "danger" : "main"}`}
            aria-disabled={busy || !!props.lacking}
            title={props.lacking}
          >
            {props.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
