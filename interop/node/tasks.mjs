// What the main thread of a page does while something goes on.

// tracer takes what launch returns. tasks(work) returns what work returned, how long it took, and the tasks of the page
// meanwhile that have taken more than 50 ms: by the clock, and of the processor. Times are in milliseconds.
export const tracer = ({ send, on }) => {
  let events = [];
  let ended = () => {};
  let page = 0;
  on('Tracing.dataCollected', ({ value }) => { events.push(...value); });
  on('Tracing.tracingComplete', () => ended());
  const tasks = async (work) => {
    events = [];
    await send('Tracing.start', { transferMode: 'ReportEvents', traceConfig: { includedCategories: ['toplevel', '__metadata'], excludedCategories: ['*'] } });
    const began = performance.now();
    const result = await work();
    const seconds = (performance.now() - began) / 1000;
    const complete = new Promise((done) => { ended = done; });
    await send('Tracing.end');
    await complete;
    const mains = new Map(events.filter((e) => e.name === 'thread_name' && e.args.name === 'CrRendererMain').map((e) => [`${e.pid} ${e.tid}`, { pid: e.pid, clock: [], cpu: [] }]));
    for (const e of events) {
      const main = e.ph === 'X' && /RunTask$/.test(e.name) && mains.get(`${e.pid} ${e.tid}`);
      if (main) { main.clock.push(e.dur / 1000); main.cpu.push((e.tdur ?? 0) / 1000); }
    }
    const sum = (list) => list.reduce((n, t) => n + t, 0);
    const main = [...mains.values()].sort((a, b) => sum(b.cpu) - sum(a.cpu))[0];
    page = main.pid;
    const of = (list) => ({ over50: list.filter((t) => t > 50).length, longest: Math.round(list.reduce((n, t) => Math.max(n, t), 0)), all: Math.round(sum(list)) });
    return { result, seconds: Math.round(seconds * 10) / 10, cpu: of(main.cpu), clock: of(main.clock) };
  };
  return { tasks, renderer: () => page };
};
