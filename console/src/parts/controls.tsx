// Buttons and fields.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { explained } from "../api";
import { notify } from "./notices";

export function Button(props: {
  children: ComponentChildren;
  onPress: () => void | Promise<unknown>;
  lacking?: string; // why it is disabled
  kind?: "plain" | "main" | "danger" | "quiet";
  title?: string;
  pressed?: boolean;
  small?: boolean;
}) {
  const [busy, setBusy] = useState(false);
  const disabled = busy || !!props.lacking;
  const press = async () => {
    if (disabled) return;
    const outcome = props.onPress();
    if (!(outcome instanceof Promise)) return;
    setBusy(true);
    try {
      await outcome;
    } catch (failure) {
      notify(explained(failure), "bad");
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      type="button"
      class={`button ${props.kind ?? "plain"}${props.small ? " small" : ""}`}
      aria-disabled={disabled} // not `disabled`, which takes the focus away and hides the reason from the keyboard
      title={props.lacking ?? props.title}
      aria-label={typeof props.children === "string" ? undefined : props.title}
      aria-pressed={props.pressed}
      onClick={() => void press()}
    >
      {props.children}
    </button>
  );
}

export function Field(props: { label: string; hint?: string; children: (id: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id)}
      {props.hint && <p class="hint">{props.hint}</p>}
    </div>
  );
}

export function TextField(props: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  hint?: string;
  placeholder?: string;
  type?: "text" | "number" | "password" | "datetime-local";
  autofocus?: boolean;
  list?: string;
}) {
  return (
    <Field label={props.label} hint={props.hint}>
      {(id) => (
        <input
          id={id}
          {...({ type: props.type ?? "text" } as { type: "text" }) /* the types allow one kind only */}
          value={props.value}
          placeholder={props.placeholder}
          autofocus={props.autofocus}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => props.onChange(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export function Select<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
  hint?: string;
  bare?: boolean;
}) {
  const field = (id?: string) => (
    <select
      id={id}
      aria-label={id ? undefined : props.label}
      value={props.value}
      onChange={(event) => props.onChange(event.currentTarget.value as T)}
    >
      {props.options.map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
  return props.bare ? (
    field()
  ) : (
    <Field label={props.label} hint={props.hint}>
      {field}
    </Field>
  );
}

export function Check(props: { label: string; value: boolean; onChange: (value: boolean) => void }) {
  const id = useId();
  return (
    <div class="check">
      <input id={id} type="checkbox" checked={props.value} onChange={(event) => props.onChange(event.currentTarget.checked)} />
      <label for={id}>{props.label}</label>
    </div>
  );
}

/** The search field of a screen: / focuses it, Esc clears it. */
export function Search(props: { value: string; onChange: (value: string) => void; label: string }) {
  return (
    <input
      type="search"
      class="search"
      data-search
      aria-label={props.label}
      placeholder={`${props.label}  ( / )`}
      value={props.value}
      spellcheck={false}
      autocomplete="off"
      onInput={(event) => props.onChange(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        props.onChange("");
        event.currentTarget.blur();
      }}
    />
  );
}

export function Badge(props: { children: ComponentChildren; kind?: "good" | "warn" | "bad" | "plain" }) {
  return <span class={`badge ${props.kind ?? "plain"}`}>{props.children}</span>;
}

/** Names in a cell: the first few, all of them as its title. */
export function Names({ of }: { of: string[] }) {
  const shown = of.slice(0, 3).join(", ");
  return (
    <span class="muted names" title={of.join(", ")}>
      {of.length > 3 ? `${shown} and ${of.length - 3} more` : shown || "–"}
    </span>
  );
}

export function Figure(props: { label: string; value: ComponentChildren; note?: ComponentChildren }) {
  return (
    <div class="figure">
      <div class="figure-label">{props.label}</div>
      <div class="figure-value">{props.value}</div>
      <div class="figure-note">{props.note ?? "\u00a0"}</div>
    </div>
  );
}
