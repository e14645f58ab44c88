// A virtual list that renders only visible rows and loads rows in pages.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export const ROW_HEIGHT = 34;
const AROUND = 12; // extra rows beyond the edge, so that scrolling shows no gaps

export function VirtualRows<T>(props: {
  label: string;
  total: number;
  row: (index: number) => T | undefined; // undefined: not loaded yet
  draw: (row: T) => ComponentChildren;
  hrefOf: (row: T) => string;
  onSight: (first: number, last: number) => void;
  header: ComponentChildren;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [active, setActive] = useState(0);

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
    const moves: Record<string, number> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: props.total - 1,
    };
    const wanted = moves[event.key];
    if (event.key === "Enter") {
      const row = props.row(active);
      if (row !== undefined) location.hash = props.hrefOf(row);
    } else if (wanted !== undefined) {
      event.preventDefault();
      const next = Math.max(0, Math.min(props.total - 1, wanted));
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
                if (row !== undefined) location.hash = props.hrefOf(row);
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
