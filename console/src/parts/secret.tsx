// A secret that the server shows once. The frame of the page draws it, so that it stays when the screen changes: the
// first API key restricts access, and then the page may have to sign in.

import { createStore, useStore } from "../store";
import { Dialog } from "./dialog";
import { Command } from "./states";

interface Secret {
  title: string;
  secret: string;
  note?: string;
}

const shown = createStore<Secret | undefined>(undefined);

export const showSecret = (secret: Secret): void => shown.set(secret);

export function SecretShown() {
  const current = useStore(shown);
  if (!current) return null;
  const close = () => shown.set(undefined);
  return (
    <Dialog title={current.title} action="Done" noCancel onClose={close} onSubmit={() => Promise.resolve()}>
      <p>Copy it now. The server stores only a hash and cannot show it again.</p>
      <Command text={current.secret} />
      {current.note && <p class="muted">{current.note}</p>}
    </Dialog>
  );
}
