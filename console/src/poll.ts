// Polls a value while it is on the screen.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, deletions } from "./api";

export interface Polled<T> {
  data: T | undefined; // the last response, kept while later requests fail
  error: ApiError | undefined;
  reload: () => Promise<void>; // resolves when the new value is there, or could not be had
}

const HIDDEN_FACTOR = 5; // a hidden page polls less often

export function usePoll<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  everyMs: number, // 0 = once
  about: readonly unknown[],
  keep = false, // the data about something else until there is an answer: a list that is searched does not go away meanwhile
): Polled<T> {
  const [answer, setAnswer] = useState<{ data?: T; error?: ApiError; about: string }>({ about: "" });
  const subject = JSON.stringify(about);
  const latest = useRef(ask);
  latest.current = ask;
  const again = useRef<() => Promise<void>>(() => Promise.resolve());

  useEffect(() => {
    let timer = 0;
    let request: AbortController | undefined; // one at a time: an older response must not replace a newer one
    const stop = () => {
      clearTimeout(timer);
      request?.abort();
    };
    const later = () => {
      clearTimeout(timer);
      if (everyMs) timer = window.setTimeout(run, document.hidden ? everyMs * HIDDEN_FACTOR : everyMs);
    };
    const run = async () => {
      stop();
      const own = (request = new AbortController());
      try {
        const data = await latest.current(own.signal);
        if (own.signal.aborted) return;
        setAnswer({ data, about: subject });
      } catch (failure) {
        if (own.signal.aborted) return;
        const error = failure instanceof ApiError ? failure : new ApiError(0, "fault", String(failure));
        setAnswer((before) => ({ data: before.about === subject ? before.data : undefined, error, about: subject }));
      }
      request = undefined;
      later();
    };
    again.current = run;
    const shown = () => {
      if (!document.hidden && everyMs) void run();
    };
    let interrupted = false;
    const unsubscribe = deletions.subscribe(() => {
      if (deletions.get()) {
        interrupted ||= request !== undefined;
        stop();
      } else if (interrupted && !everyMs) void run();
      else later();
    });
    document.addEventListener("visibilitychange", shown);
    void run();
    return () => {
      stop();
      unsubscribe();
      document.removeEventListener("visibilitychange", shown);
    };
  }, [subject, everyMs]);

  const reload = useCallback(() => again.current(), []);
  const current = answer.about === subject;
  return { data: current || keep ? answer.data : undefined, error: current ? answer.error : undefined, reload };
}
