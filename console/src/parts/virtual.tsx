// A virtual list that renders only visible rows and loads rows in pages.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export const ROW_HEIGHT = 34;
const AROUND = 12; // extra rows beyond the edge, so that scrolling shows no gaps

export function VirtualRows<T>(props: {
  label: string;
  of: string; // which list this is: another one starts at its first row
  total: number;
  loading: boolean; // the total is still that of another list
  row: (index: number) => T | undefined; // undefined: not loaded yet
  draw: (row: T) => ComponentChildren;
  hrefOf: (row: T) => string;
  onSight: (first: number, last: number) => void;
  header: ComponentChildren;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [chosen, setActive] = useState(0);
  const active = Math.max(0, Math.min(chosen, props.total - 1));
  const opening = useRef(false); // Enter was pressed on a row that is not loaded yet

  useLayoutEffect(() => {
    setActive(0);
    if (frame.current) frame.current.scrollTop = 0;
  }, [props.of]);
  const open = (index: number) => {
    const row = props.row(index);
    opening.current = props.loading || row === undefined;
    if (!opening.current && row !== undefined) location.hash = props.hrefOf(row);
  };
  useEffect(() => {
    if (opening.current) open(active);
  });

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const sizes = new ResizeObserver(() => setHeight(element.clientHeight));
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);

  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - AROUND);
  const last = Math.min(props.total, Math.ceil((top + height) / ROW_HEIGHT) + AROUND);
  useEffect(() => props.onSight(first, last), [first, last]);

  const page = Math.max(1, Math.floor(height / ROW_HEIGHT) - 1);
  const onKeyDown = (event: KeyboardEvent) => {
    const from = props.loading ? chosen : active;
    const moves: Record<string, number> = {
      ArrowDown: from + 1,
      ArrowUp: from - 1,
      PageDown: from + page,
      PageUp: from - page,
      Home: 0,
      End: props.total - 1,
    };
    const wanted = moves[event.key];
    if (event.target === event.currentTarget && event.key === "Enter") open(active);
    else if (wanted !== undefined) {
      opening.current = false;
      event.preventDefault();
      const next = Math.max(0, props.loading ? wanted : Math.min(props.total - 1, wanted));
      setActive(next);
      const element = frame.current;
      if (!element) return;
      const at = next * ROW_HEIGHT;
      if (at < element.scrollTop) element.scrollTop = at;
      else if (at + 2 * ROW_HEIGHT > element.scrollTop + height) element.scrollTop = at + 2 * ROW_HEIGHT - height;
    }
  };

  return (
    <div
      ref={frame}
      class="virtual"
      role="grid"
      tabIndex={0}
      aria-label={props.label}
      aria-rowcount={props.total}
      aria-activedescendant={props.total ? `row-${active}` : undefined}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div class="virtual-header" role="row">
        {props.header}
      </div>
      <div class="virtual-body" style={{ height: `${props.total * ROW_HEIGHT}px` }}>
        {Array.from({ length: Math.max(0, last - first) }, (_, at) => first + at).map((index) => {
          const row = props.row(index);
          return (
            <div
              key={index}
              id={`row-${index}`}
              role="row"
              aria-rowindex={index + 1}
              class={`virtual-row${index === active ? " active" : ""}`}
              style={{ top: `${index * ROW_HEIGHT}px` }}
              onClick={() => {
                setActive(index);
                open(index);
              }}
            >
              {row === undefined ? <span class="waiting" /> : props.draw(row)}
            </div>
          );
        })}
      </div>
    </div>
  );
}
