'use strict';
// The page of `faultless report --html`: figures, a time line, a flame graph, a treemap and tables, all of the object in
// #data. Everything is text, a button or a graphic with a name, so that keyboards and screen readers get at it.
const data = JSON.parse(document.getElementById('data').textContent);
const find = (id) => document.getElementById(id);
const number = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
const percent = (share) => `${(share * 100).toFixed(1)} %`;
// As `part_of_time` of the report.
const partOfTime = (part) => (part === null ? '?' : part >= 0.95 && part <= 1 ? 'about all' : percent(part));
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;

function seconds(s) {
  if (s === null || s === undefined) return '?';
  for (const [unit, factor] of [['s', 1], ['ms', 1e3], ['µs', 1e6]]) {
    if (s * factor >= 1) return `${(s * factor).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(s * 1e9)} ns`;
}

function size(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit < 5; unit++) bytes /= 1024;
  return `${Number(bytes.toPrecision(4))} ${['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit]}`;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'class') made.className = value;
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Light colours, on which black text can be read in both themes; the same name has the same one.
function colour(name, saturation = 62) {
  let hash = 7;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) % 360;
  return `hsl(${hash} ${saturation}% 78%)`;
}

function head() {
  const { recording, faults, time } = data;
  const what = recording.command.join(' ') + (recording.pid ? ` (process ${recording.pid})` : '');
  find('command').textContent = what;
  document.title = `Page faults of ${what}`;
  const about = [recording.covered ? 'under faultless' : 'plain', new Date(recording.unix_s * 1000).toLocaleString(),
    `Linux ${recording.kernel}, ${recording.cpus} CPUs`, `one record for ${recording.period} faults: ${number(recording.samples)}`];
  find('about').textContent = about.join(' · ');
  find('advice').textContent = data.advice.text;
  const figures = [['Page faults', number(faults.total)], ['Time in them', seconds(time.total_s)],
    ['Part of wall time', partOfTime(time.of_wall)],
    ['Part of processor time', partOfTime(time.of_cpu)],
    ['A fault', time.per_fault_ns === null ? '?' : seconds(time.per_fault_ns / 1e9)],
    ['Waited for input', number(faults.major)], ['Wall time', seconds(recording.wall_s)],
    ['Processor time', seconds(recording.cpu_s)],
    ['Peak memory', recording.peak_bytes ? size(recording.peak_bytes) : '?'],
    ['Processes, threads', `${number(recording.processes)}, ${number(recording.threads)}`]];
  find('numbers').append(...figures.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  find('notes').append(...data.notes.map((note) => element('li', {}, note)));
}

function timeline() {
  const { step_s: step, faults } = data.timeline;
  const box = find('line');
  box.replaceChildren();
  if (!faults.length) return box.append('Nothing was recorded over time.');
  const width = Math.max(box.clientWidth, 200), height = 200, left = 64, bottom = 28;
  const end = step * faults.length, most = d3.max(faults) / step || 1;
  const x = d3.scaleLinear([0, end], [left, width - 8]), y = d3.scaleLinear([0, most], [height - bottom, 8]).nice();
  const busiest = faults.indexOf(d3.max(faults));
  const svg = d3.select(box).append('svg').attr('width', width).attr('height', height).attr('role', 'img')
    .attr('aria-label', `Faults over ${seconds(end)}: at most ${number(most)} a second, at ${seconds(busiest * step)}`);
  svg.selectAll('rect').data(faults).join('rect').attr('x', (_, i) => x(i * step)).attr('y', (n) => y(n / step))
    .attr('width', Math.max((x(end) - x(0)) / faults.length - 0.5, 0.5)).attr('height', (n) => y(0) - y(n / step))
    .append('title').text((n, i) => `${seconds(i * step)}: ${number(n / step)} faults/s`);
  svg.append('g').attr('transform', `translate(0,${y(0)})`).call(d3.axisBottom(x).ticks(Math.max(width / 120, 2)).tickFormat((s) => `${s} s`));
  svg.append('g').attr('transform', `translate(${left},0)`).call(d3.axisLeft(y).ticks(5, '~s'));
  svg.append('text').attr('x', left + 6).attr('y', 14).text('faults/s');
}

// The tree of call stacks: each node has the faults of all stacks through it.
function tree() {
  const root = { name: 'all', value: 0, children: new Map() };
  for (const [faults, frames] of data.stacks) {
    let node = root;
    node.value += faults;
    for (const frame of frames) {
      const name = data.names[frame];
      if (!node.children.has(name)) node.children.set(name, { name, value: 0, children: new Map() });
      node = node.children.get(name);
      node.value += faults;
    }
  }
  const plain = (node) => ({ name: node.name, value: node.value, children: [...node.children.values()].map(plain) });
  return plain(root);
}

const flame = { chart: null, root: null, focus: null };

function label(d) {
  const all = flame.root?.value || d.data.value;
  return `${d.data.name}: ${number(d.data.value)} faults, ${percent(d.data.value / all)}`;
}

// What the library draws becomes reachable by keys: one bar at a time, and from there its neighbours.
function reachable() {
  const frames = d3.select('#flame svg').attr('role', 'group').attr('aria-label', 'Call stacks as a flame graph').selectAll('g.frame');
  const has = frames.filter((d) => d === flame.focus).size() > 0;
  if (!has) flame.focus = frames.size() ? frames.datum() : null;
  frames.attr('role', 'button').attr('aria-label', label).attr('tabindex', (d) => (d === flame.focus ? 0 : -1));
}

function go(d) {
  const frame = d && d3.selectAll('#flame g.frame').filter((other) => other === d);
  if (!frame || !frame.size()) return;
  flame.focus = d;
  reachable();
  frame.node().focus();
}

function zoomed(d) {
  find('reset').disabled = !d.parent;
  find('frame').textContent = d.parent ? `Zoomed to ${label(d)}` : '';
  flame.focus = d;
}

function unzoom() {
  flame.chart.resetZoom();
}

function keys(event) {
  const d = d3.select(event.target).datum();
  if (!d?.data) return;
  const row = d.parent ? d.parent.children : [d], at = row.indexOf(d);
  const steps = {
    ArrowUp: () => go(d.parent), ArrowDown: () => go(d.children && d3.greatest(d.children, (child) => child.value)),
    ArrowLeft: () => go(row[at - 1]), ArrowRight: () => go(row[at + 1]),
    Enter: () => flame.chart.zoomTo(d), ' ': () => flame.chart.zoomTo(d), Escape: unzoom,
  };
  if (!steps[event.key]) return;
  event.preventDefault();
  steps[event.key]();
}

function stacks() {
  const box = find('flame');
  if (!data.stacks.length) return box.append('No call stacks were recorded.');
  flame.root = tree();
  flame.chart = flamegraph.default().width(Math.max(box.clientWidth, 280)).cellHeight(20).inverted(true).minFrameSize(2)
    .transitionDuration(calm ? 0 : 250).tooltip(false).sort((a, b) => d3.descending(a.value, b.value))
    .setLabelHandler(label).setDetailsHandler((text) => { if (text) find('frame').textContent = text; })
    .setSearchMatch((d, term) => d.data.name.toLowerCase().includes(term.toLowerCase()))
    .setColorMapper((d) => (d.highlight || d.data.highlight ? '#f07ae8' : colour(d.data.name)))
    .onClick(zoomed).setSearchHandler((_, sum, total) => { flame.found = total ? sum / total : 0; });
  d3.select(box).datum(flame.root).call(flame.chart);
  box.addEventListener('keydown', keys);
  box.addEventListener('focusin', (event) => { const d = d3.select(event.target).datum(); if (d?.data) find('frame').textContent = label(d); });
  find('reset').addEventListener('click', unzoom);
  new MutationObserver(reachable).observe(box.querySelector('svg'), { childList: true });
  reachable();
}

function treemap() {
  const box = find('map');
  box.replaceChildren();
  const classes = d3.groups(data.mappings.filter((by) => by.faults > 0), (by) => by.class);
  if (!classes.length) return box.append('No mappings were recorded.');
  const tint = (name) => colour(`${name}!`, 55);
  find('legend').replaceChildren(...classes.map(([name]) => {
    const box = element('span', { 'aria-hidden': 'true' });
    box.style.background = tint(name);
    return element('li', {}, box, name);
  }));
  const root = d3.hierarchy({ children: classes.map(([name, rows]) => ({ name, children: rows })) }).sum((by) => by.faults || 0)
    .sort((a, b) => b.value - a.value);
  d3.treemap().size([box.clientWidth, box.clientHeight]).paddingOuter(1)(root);
  for (const leaf of root.leaves()) {
    const by = leaf.data, width = leaf.x1 - leaf.x0, height = leaf.y1 - leaf.y0;
    const text = `${by.name}: ${number(by.faults)} faults, ${percent(by.share)}`;
    const cell = element('button', { type: 'button', title: text, 'aria-label': `${text}, ${by.class}`, onclick: () => choose('mappings', by) });
    if (width > 50 && height > 18) cell.append(`${by.name} ${percent(by.share)}`);
    Object.assign(cell.style, { left: `${leaf.x0}px`, top: `${leaf.y0}px`, width: `${width}px`, height: `${height}px`, background: tint(by.class) });
    box.append(cell);
  }
}

// Tables: sorted by their heads, filtered by the search.
const tables = {};
const ROWS = 15;
// In the order in which they are given.
const AVOIDABLE = [['text', 'Way'], ['least', 'At least', number], ['most', 'At most', number], ['how', 'How this was found']];
const SERVED = [['text', 'What'], ['bytes', 'Bytes', size]];
const PART = [['faults', 'Faults', number], ['share', 'Share', percent], ['time_s', 'Time', seconds]];

function draw(table) {
  const term = find('search').value.trim().toLowerCase(), { by, falling, columns } = table;
  const all = table.rows.filter((row) => !term || columns.some(([key, , show]) => !show && String(row[key] ?? '').toLowerCase().includes(term)));
  const value = (row) => row[by] ?? (typeof table.rows[0]?.[by] === 'string' ? '' : -1);
  if (by) all.sort((a, b) => (falling ? d3.descending : d3.ascending)(value(a), value(b)));
  const shown = table.all ? all : all.slice(0, ROWS);
  table.body.replaceChildren(...shown.map((row) => element('tr', row === table.chosen ? { class: 'chosen', tabindex: '-1' } : {},
    ...columns.map(([key, , show]) => element('td', { class: show ? 'number' : 'text' }, show ? show(row[key]) : String(row[key] ?? ''))))));
  for (const [key, head] of Object.entries(table.heads)) {
    head.setAttribute('aria-sort', key === by ? (falling ? 'descending' : 'ascending') : 'none');
  }
  table.more.hidden = all.length <= ROWS;
  table.more.textContent = table.all ? `Show ${ROWS} rows` : `Show all ${number(all.length)} rows`;
  return all.length;
}

function makeTable(id, title, rows, columns) {
  if (!rows?.length) return;
  const table = { rows, columns, by: [AVOIDABLE, SERVED].includes(columns) ? null : 'faults', falling: true, all: false, heads: {}, body: element('tbody') };
  const sort = (key, isNumber) => () => {
    table.falling = table.by === key ? !table.falling : isNumber;
    table.by = key;
    draw(table);
  };
  const heads = columns.map(([key, name, show]) => (table.heads[key] = element('th', { scope: 'col', class: show ? 'number' : '' },
    element('button', { type: 'button', onclick: sort(key, Boolean(show)) }, name))));
  table.more = element('button', { type: 'button', class: 'more', onclick: () => { table.all = !table.all; draw(table); } });
  const whole = element('table', { id: `${id}-table` }, element('caption', {}, title), element('thead', {}, element('tr', {}, ...heads)), table.body);
  const box = element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `${title}, table` }, whole);
  find('tables').append(element('section', { id, 'aria-labelledby': `${id}-title` }, element('h2', { id: `${id}-title` }, title), box, table.more));
  tables[id] = table;
  draw(table);
}

function choose(id, row) {
  const table = tables[id];
  Object.assign(table, { chosen: row, all: true });
  find('search').value = '';
  search();
  const line = table.body.querySelector('.chosen');
  line.scrollIntoView({ block: 'center' });
  line.focus();
}

function search() {
  const term = find('search').value.trim();
  const rows = d3.sum(Object.values(tables), draw);
  flame.found = 0;
  if (flame.chart) term ? flame.chart.search(term) : flame.chart.clear();
  const found = `${number(rows)} rows, and functions with ${percent(flame.found)} of all faults in call stacks`;
  find('found').textContent = term ? found : '';
}

function theme() {
  const names = ['automatic', 'light', 'dark'], root = document.documentElement;
  const next = names[(names.indexOf(root.dataset.theme ?? 'automatic') + 1) % 3];
  if (next === 'automatic') delete root.dataset.theme;
  else root.dataset.theme = next;
  root.style.colorScheme = next === 'automatic' ? '' : next;
  find('theme').textContent = `Theme: ${next}`;
}

function start() {
  head();
  const own = (name, title) => [[name, title], ...PART];
  makeTable('avoidable', 'What could be avoided', data.avoidable, AVOIDABLE);
  makeTable('served', 'What faultless did', data.served?.rows, SERVED);
  if (tables.served && data.served.avoided_most) {
    find('served').append(element('p', {}, `Faults that this avoided: at most ${number(data.served.avoided_most)}: ${data.served.how}.`));
  }
  makeTable('kinds', 'Kinds', data.kinds, [...own('text', 'Kind'), ['per_fault_ns', 'Each', (ns) => seconds(ns === null ? null : ns / 1e9)]]);
  makeTable('mappings', 'Mappings as a table', data.mappings, [...own('name', 'Mapping'), ['class', 'Class'], ['allocator', 'Allocator?'], ['areas', 'Areas', number], ['largest_bytes', 'Largest', size]]);
  makeTable('functions', 'Functions', data.functions, [...own('name', 'Function'), ['file', 'File']]);
  makeTable('processes', 'Processes', data.processes, [...own('name', 'Process'), ['pid', 'PID', String]]);
  makeTable('threads', 'Threads', data.threads, [...own('name', 'Thread'), ['tid', 'TID', String], ['pid', 'PID', String]]);
  const { step_s: step, faults } = data.timeline;
  const lines = faults.map((n, i) => element('tr', {}, element('td', { class: 'number' }, seconds(i * step)), element('td', { class: 'number' }, number(n))));
  find('line-table').append(element('table', {}, element('thead', {}, element('tr', {}, element('th', { scope: 'col', class: 'number' }, 'From'),
    element('th', { scope: 'col', class: 'number' }, 'Faults'))), element('tbody', {}, ...lines)));
  find('parts').append(...[...document.querySelectorAll('section')].map((part) => element('li', {}, element('a', { href: `#${part.id}` }, part.querySelector('h2').textContent))));
  timeline();
  treemap();
  stacks();
  find('search').addEventListener('input', search);
  find('theme').addEventListener('click', theme);
  let waiting = 0, width = innerWidth;
  addEventListener('resize', () => {
    // On a phone, the height changes while one scrolls.
    if (width === innerWidth) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      timeline();
      treemap();
      if (flame.chart) flame.chart.width(Math.max(find('flame').clientWidth, 280)).update();
    }, 100);
  });
  document.documentElement.dataset.ready = 'yes';
}
start();
