export default {
  build: { target: 'es2022' },
  worker: { format: 'es' },
  oxc: { jsx: { runtime: 'automatic' } },
};
