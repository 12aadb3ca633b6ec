// Adds requests as they end. What is in an event was escaped as the page was.
const { query, ended } = document.body.dataset;
const list = document.getElementById('requests');
const events = new EventSource(`/requests/events?ended=${ended}&${query}`);
events.onopen = () => { document.getElementById('live').textContent = 'Later ones come by themselves.'; };
events.onerror = () => { document.getElementById('live').textContent = 'Reload the page for later ones.'; };
events.onmessage = (event) => {
  const template = document.createElement('template');
  template.innerHTML = event.data;
  const request = template.content.firstElementChild;
  document.getElementById(request.id)?.remove();
  list.prepend(request);
  while (list.childElementCount > 100) list.lastElementChild.remove();
};
