import { useState } from "preact/hooks";
import { ApiError, explained, signOut } from "../api";
import { TextField } from "../parts/controls";
import { enter } from "../rights";

export function SignIn() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await enter(key.trim());
    } catch (failure) {
      signOut();
      setProblem(failure instanceof ApiError && failure.status === 401 ? "The server does not accept this key." : explained(failure));
    }
  };
  return (
    <form class="card sign-in" onSubmit={(event) => void submit(event)}>
      <h1>Sign in</h1>
      <p class="muted">
        This server requires an API key: one from <code>MAINSTEM_API_KEYS</code> or from <code>mainstem key create</code>. The key
        stays in this tab.
      </p>
      <TextField label="API key" type="password" value={key} onChange={setKey} autofocus />
      <p class="problem" role="alert">
        {problem}
      </p>
      <button type="submit" class="button main" disabled={!key.trim()}>
        Sign in
      </button>
    </form>
  );
}
