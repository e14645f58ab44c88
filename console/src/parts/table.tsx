// A table. Rows that open something are focusable: arrow keys move, Enter opens. On phones each row is a block of named
// values; the roles keep it a table for screen readers, which a change of `display` would end.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { ScrollFrame } from "./scroll_frame";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  number?: boolean; // aligned right
  wide?: boolean; // takes the remaining width
}

export function Table<T>(props: {
  label: string;
  columns: Column<T>[];
  rows: T[];
  keyOf: (row: T) => string | number;
  onOpen?: (row: T) => void;
  selected?: string | number;
}) {
  const body = useRowFocus();
  return (
    <ScrollFrame class="table-frame" label={props.label}>
      <table class="table listed" role="table" aria-label={props.label}>
        <thead role="rowgroup">
          <tr role="row">
            {props.columns.map((column) => (
              <th key={column.name} role="columnheader" scope="col" class={cellClass(column)}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body} role="rowgroup" onKeyDown={moveByArrows}>
          {props.rows.map((row) => {
            const key = props.keyOf(row);
            const open = props.onOpen;
            return (
              <tr
                key={key}
                role="row"
                tabIndex={open ? 0 : undefined}
                class={open ? "openable" : undefined}
                aria-selected={props.selected === undefined ? undefined : props.selected === key}
                onClick={open && (() => open(row))}
                onKeyDown={
                  open &&
                  ((event) => {
                    if (event.key === "Enter" && event.target === event.currentTarget) open(row);
                  })
                }
              >
                {props.columns.map((column) => (
                  <td key={column.name} role="cell" data-name={column.name} class={cellClass(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </ScrollFrame>
  );
}

function cellClass<T>(column: Column<T>): string | undefined {
  return [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ") || undefined;
}

/** Keeps the focus in the rows of a table body: a row that moves loses it, and so does one that goes. */
export function useRowFocus() {
  const body = useRef<HTMLTableSectionElement>(null);
  const focused = document.activeElement;
  const row = body.current?.contains(focused) ? focused?.closest("tr") : null;
  const at = row && body.current ? [...body.current.children].indexOf(row) : -1;
  useLayoutEffect(() => {
    if (!row || document.activeElement !== document.body) return;
    const rows = body.current?.children;
    const next = focused?.isConnected ? focused : rows?.[Math.min(at, rows.length - 1)];
    if (next instanceof HTMLElement) next.focus({ preventScroll: true });
  });
  return body;
}

/** Arrow keys move the focus between rows. */
export function moveByArrows(event: KeyboardEvent): void {
  const row = (event.target as HTMLElement).closest<HTMLElement>("tr[tabindex]");
  if (!row) return;
  const steps: Record<string, Element | null | undefined> = {
    ArrowDown: row.nextElementSibling,
    ArrowUp: row.previousElementSibling,
    Home: row.parentElement?.firstElementChild,
    End: row.parentElement?.lastElementChild,
  };
  const next = steps[event.key];
  if (!(next instanceof HTMLElement)) return;
  event.preventDefault();
  next.focus();
}
