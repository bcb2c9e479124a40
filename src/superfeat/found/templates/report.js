// Finds queries by name, and sorts the table of all queries by a click on a column.
const find = document.getElementById('find');
const named = [...document.querySelectorAll('[data-name]')];

if (find) {
  find.closest('label').hidden = false;
  find.addEventListener('input', () => {
    const text = find.value.toLowerCase();
    for (const one of named) one.hidden = !one.dataset.name.toLowerCase().includes(text);
  });
}

function sortBy(head) {
  const up = head.getAttribute('aria-sort') !== 'ascending';
  const body = head.closest('table').tBodies[0];
  for (const other of head.parentNode.children) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const key = (row) => row.cells[head.cellIndex].textContent;
  const order = (a, b) => head.className === 'n'
    ? (parseFloat(a) || 0) - (parseFloat(b) || 0)
    : a.localeCompare(b, 'en', { numeric: true });
  body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * order(key(a), key(b))));
}

for (const head of document.querySelectorAll('#queries-table th')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener('click', () => sortBy(head));
}
