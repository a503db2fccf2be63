import { Kitfox } from 'kitfox';
import { useEffect, useState } from 'react';

/** A model for as long as the component is there: `{ fox, error, progress }`, of which what is known is set. */
export function useKitfox(url) {
  const [state, setState] = useState({});
  useEffect(() => {
    const ends = new AbortController();
    let fox;
    const load = async () => {
      try {
        fox = await Kitfox.load(url, { signal: ends.signal, onProgress: (progress) => setState({ progress }) });
        if (ends.signal.aborted) fox.dispose();
        else setState({ fox });
      } catch (error) {
        if (!ends.signal.aborted) setState({ error });
      }
    };
    void load();
    // Also between the two times that React's strict mode runs an effect.
    return () => {
      ends.abort();
      fox?.dispose();
      setState({});
    };
  }, [url]);
  return state;
}
