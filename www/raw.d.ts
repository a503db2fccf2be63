/** A file's text, by Vite. */
declare module '*?raw' {
  const text: string;
  export default text;
}
