// Where runs come from: the blocks in an exported page, or the server that serves the page.

/**
 * Return the source of this page: runs() lists {number, exact}; overview(run) and part(run, number) are blocks.
 *
 * explanation(run, id) tells where a job's time went; null if the source does not know.
 */
export function pageSource() {
  const embedded = document.getElementById("runs");
  return embedded ? embeddedSource(JSON.parse(embedded.textContent)) : serverSource();
}

function embeddedSource(runs) {
  const block = (name) => {
    const text = atob(document.getElementById(name).textContent);
    const bytes = new Uint8Array(text.length);
    for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
    return bytes;
  };
  return {
    runs: async () => runs,
    overview: async (run) => block(`run-${run}`),
    part: async (run, number) => block(`run-${run}-part-${number}`),
    explanation: async () => null,
  };
}

function serverSource() {
  const get = async (path) => {
    const response = await fetch(path, { credentials: "same-origin" });
    if (!response.ok) throw new Error(await response.text());
    return response;
  };
  return {
    runs: async () => (await get("runs")).json(),
    overview: async (run) => (await get(`runs/${run}`)).arrayBuffer(),
    part: async (run, number) => (await get(`runs/${run}/parts/${number}`)).arrayBuffer(),
    explanation: async (run, id) => (await get(`runs/${run}/jobs/${encodeURIComponent(id)}`)).json(),
  };
}
