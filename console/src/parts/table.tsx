// A table. Rows that open something are focusable: arrow keys move, Enter opens.

import type { ComponentChildren } from "preact";
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
  return (
    <ScrollFrame class="table-frame" label={props.label}>
      <table class="table" aria-label={props.label}>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th key={column.name} scope="col" class={cellClass(column)}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody onKeyDown={moveByArrows}>
          {props.rows.map((row) => {
            const key = props.keyOf(row);
            const open = props.onOpen;
            return (
              <tr
                key={key}
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
                  <td key={column.name} class={cellClass(column)}>
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
