// The colour theme: the system's, unless the user chooses one.

import { createStore } from "./store";

export type Theme = "light" | "dark";

const PLACE = "mainstem.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = (): Theme | null => {
  const kept = localStorage.getItem(PLACE);
  return kept === "light" || kept === "dark" ? kept : null;
};
const effective = (): Theme => chosen() ?? (system.matches ? "dark" : "light");

export const theme = createStore<Theme>(effective());

function apply(): void {
  document.documentElement.dataset.theme = effective();
  theme.set(effective());
}

export function toggleTheme(): void {
  localStorage.setItem(PLACE, theme.get() === "dark" ? "light" : "dark");
  apply();
}

system.addEventListener("change", apply);
apply();
