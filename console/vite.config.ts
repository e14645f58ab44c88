import { defineConfig } from "vite";

export default defineConfig({
  base: "/console/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/mainstem/console/static",
    emptyOutDir: true,
    sourcemap: false,
    modulePreload: false,
    // Everything in a file: the content security policy allows no data URLs.
    assetsInlineLimit: 0,
  },
  server: {
    // `npm run dev` beside a server on its usual port.
    proxy: { "/v0": "http://127.0.0.1:4000", "/iceberg": "http://127.0.0.1:4000" },
  },
});
