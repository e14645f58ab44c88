// Polls a value while it is on the screen.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";

export interface Polled<T> {
  data: T | undefined; // the last response, kept while later requests fail
  error: ApiError | undefined;
  reload: () => void;
}

const HIDDEN_FACTOR = 5; // a hidden page polls less often

export function usePoll<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  everyMs: number, // 0 = once
  about: readonly unknown[],
): Polled<T> {
  const [answer, setAnswer] = useState<{ data?: T; error?: ApiError; about: string }>({ about: "" });
  const subject = JSON.stringify(about);
  const latest = useRef(ask);
  latest.current = ask;
  const again = useRef<() => void>(() => undefined);

  useEffect(() => {
    const ending = new AbortController();
    let timer = 0;
    const run = async () => {
      clearTimeout(timer);
      try {
        const data = await latest.current(ending.signal);
        if (ending.signal.aborted) return;
        setAnswer({ data, about: subject });
      } catch (failure) {
        if (ending.signal.aborted) return;
        const error = failure instanceof ApiError ? failure : new ApiError(0, "fault", String(failure));
        setAnswer((before) => ({ data: before.about === subject ? before.data : undefined, error, about: subject }));
      }
      if (everyMs) timer = window.setTimeout(run, document.hidden ? everyMs * HIDDEN_FACTOR : everyMs);
    };
    again.current = () => void run();
    const shown = () => {
      if (!document.hidden && everyMs) void run();
    };
    document.addEventListener("visibilitychange", shown);
    void run();
    return () => {
      ending.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [subject, everyMs]);

  const reload = useCallback(() => again.current(), []);
  const current = answer.about === subject;
  return { data: current ? answer.data : undefined, error: current ? answer.error : undefined, reload };
}
