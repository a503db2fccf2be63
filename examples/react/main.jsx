import { StrictMode, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { useKitfox } from './use-kitfox.js';

function Story() {
  const { fox, error, progress } = useKitfox('/models/demo.gguf');
  const [prompt, setPrompt] = useState('The old fox stopped at the edge of the wood, and');
  const [text, setText] = useState('');
  const [ids, setIds] = useState([]);
  const [told, setTold] = useState('');
  const running = useRef();

  async function write(event) {
    event.preventDefault();
    const ends = (running.current = new AbortController());
    setText(prompt);
    setIds([]);
    setTold('Writing');
    try {
      // Temperature 0: the likeliest token each time, so that every run writes the same.
      const story = fox.generate(prompt, { maxTokens: 16, temperature: 0, signal: ends.signal });
      for await (const piece of story) {
        setText((before) => before + piece.text);
        setIds((before) => [...before, ...piece.ids]);
      }
      setTold(`${story.summary.tokens} tokens, ${story.summary.tokensPerSecond.toFixed(1)} a second`);
    } catch (thrown) {
      setTold(thrown.code === 'aborted' ? 'Stopped' : thrown.message);
    } finally {
      running.current = undefined;
    }
  }

  const loading = progress === undefined ? 'Loading the model' : `Loading the model: ${Math.round((100 * progress.doneBytes) / progress.totalBytes)} %`;
  const writing = told === 'Writing';
  return (
    <>
      <form onSubmit={write}>
        <p>
          <textarea aria-label="The beginning" rows="3" cols="60" value={prompt} onChange={(event) => setPrompt(event.target.value)} />
        </p>
        <button id="write" disabled={fox === undefined || writing}>Write</button>{' '}
        <button type="button" disabled={!writing} onClick={() => running.current?.abort()}>Stop</button>
      </form>
      <p>
        {/* A text may be spelled in several ways: these are its tokens. */}
        <output data-ids={JSON.stringify(ids)}>{text}</output>
      </p>
      <p id="status" role="status">{error?.message ?? (fox === undefined ? loading : told || `Ready, on ${fox.info.device}`)}</p>
    </>
  );
}

createRoot(document.getElementById('root')).render(
  <StrictMode>
    <Story />
  </StrictMode>,
);
