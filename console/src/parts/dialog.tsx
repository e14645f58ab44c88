// A modal dialog: Esc closes it, it traps the focus and restores it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { explained } from "../api";

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
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    shown.current?.showModal();
    return () => before?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await props.onSubmit();
      props.onClose();
    } catch (failure) {
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
            disabled={busy || !!props.lacking}
            title={props.lacking}
          >
            {props.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
