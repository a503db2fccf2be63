/** A file's text, by Vite. */
declare module '*?raw' {
  const text: string;
  export default text;
}

/** What Vite states of a build. */
interface ImportMeta {
  readonly env: { readonly PROD: boolean };
}
