// The report works without this script; with it the timeline zooms, findings are shown in place, and hovering explains.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");

  function each(selector, act, within) {
    Array.prototype.forEach.call((within || document).querySelectorAll(selector), act);
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.do === "theme") {
      var dark = getComputedStyle(root).colorScheme === "dark";
      root.dataset.theme = dark ? "light" : "dark";
    }
    if (button.dataset.copy) {
      var text = document.getElementById(button.dataset.copy).textContent;
      navigator.clipboard.writeText(text).then(
        function () { button.textContent = "copied"; },
        function () { button.textContent = "can't copy here"; }
      );
    }
  });

  var plot = document.querySelector(".plot");
  if (!plot) return;
  var wide = plot.querySelector(".wide"), svg = plot.querySelector("svg"), axis = svg.querySelector(".axis");
  var over = document.querySelector(".over"), pane = over.querySelector(".window"), panel = document.querySelector(".focus");
  var start = parseFloat(over.dataset.start), end = parseFloat(over.dataset.end), span = end - start;
  var zoom = 1, widest = 8e6; // px; browsers lose precision beyond

  // -- hovering: the <title> of each mark, shown at once and in full
  var tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.appendChild(tip);
  each("title", function (title) {
    title.parentNode.tip = title.textContent;
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.remove();
  }, svg);
  function described(node) {
    while (node && node !== svg && !node.tip) node = node.parentNode;
    return node && node.tip ? node.tip : null;
  }
  svg.addEventListener("pointermove", function (event) {
    var text = drag ? null : described(event.target);
    tip.hidden = !text;
    if (!text) return;
    if (tip.textContent !== text) tip.textContent = text;
    var box = tip.getBoundingClientRect();
    var x = event.clientX + 14, y = event.clientY + 16;
    if (x + box.width > innerWidth - 8) x = Math.max(8, event.clientX - box.width - 12);
    if (y + box.height > innerHeight - 8) y = Math.max(8, event.clientY - box.height - 12);
    tip.style.left = x + "px";
    tip.style.top = y + "px";
  });
  plot.addEventListener("pointerleave", function () { tip.hidden = true; });
  addEventListener("scroll", function () { tip.hidden = true; }, { passive: true });

  // -- zoom: the drawing gets wider, every x in it is a percentage
  function width() { return plot.clientWidth * zoom; }
  function limit(value) { return Math.min(Math.max(1, widest / plot.clientWidth), Math.max(1, value)); }
  function zoomTo(from, to) {
    zoom = limit(span / Math.max(to - from, 1e-9));
    wide.style.width = zoom * 100 + "%";
    var middle = ((from + to) / 2 - start) / span;
    plot.scrollLeft = middle * width() - plot.clientWidth / 2;
    refresh();
  }
  function zoomAt(factor, x) {
    var share = (plot.scrollLeft + x) / width();
    zoom = limit(zoom * factor);
    wide.style.width = zoom * 100 + "%";
    plot.scrollLeft = share * width() - x;
    refresh();
  }

  var labels = Array.prototype.slice.call(svg.querySelectorAll(".fit")).map(function (text) {
    return { text: text, keep: text.classList.contains("keep"), a: parseFloat(text.dataset.a), p: parseFloat(text.dataset.p), n: parseFloat(text.dataset.n) };
  });
  var pending = false;
  function refresh() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(function () {
      pending = false;
      var full = width(), left = plot.scrollLeft, seen = plot.clientWidth;
      var one = full / 100, from = left / one, to = (left + seen) / one;
      labels.forEach(function (label) {
        if (label.a + label.p < from || label.a > to) {
          label.text.setAttribute("x", label.a + "%");
          return;
        }
        // A name stays in sight while its bar does.
        var a = Math.max(label.a, from), b = label.a + label.p;
        if (!label.keep) label.text.classList.toggle("tight", (b - a) * one < label.n);
        label.text.setAttribute("x", a + "%");
      });
      ticks(start + left / full * span, start + (left + seen) / full * span);
      pane.style.left = left / full * 100 + "%";
      pane.style.width = seen / full * 100 + "%";
      pane.style.display = zoom > 1.001 ? "" : "none";
    });
  }

  function ticks(from, to) {
    var rough = (to - from) / Math.max(3, plot.clientWidth / 95);
    var power = Math.pow(10, Math.floor(Math.log10(rough)));
    var step = [1, 2, 5, 10].map(function (factor) { return factor * power; }).filter(function (size) { return size >= rough * 0.999; })[0];
    var digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    var name = "http://www.w3.org/2000/svg";
    axis.textContent = "";
    for (var index = Math.ceil(from / step - 1e-6); index * step <= to + step * 1e-6; index++) {
      var at = index * step, x = (at - start) / span * 100 + "%";
      var line = document.createElementNS(name, "line"), text = document.createElementNS(name, "text");
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      line.setAttribute("y1", axis.dataset.y1);
      line.setAttribute("y2", axis.dataset.y2);
      line.setAttribute("class", "grid");
      text.setAttribute("x", x);
      text.setAttribute("y", axis.dataset.ty);
      text.setAttribute("class", "tick plot-tick");
      var edge = (at - from) / (to - from) * plot.clientWidth;
      if (edge < 16) text.style.textAnchor = "start";
      if (edge > plot.clientWidth - 16) text.style.textAnchor = "end";
      text.textContent = at.toFixed(digits);
      axis.appendChild(line);
      axis.appendChild(text);
    }
  }

  plot.addEventListener("scroll", refresh, { passive: true });
  addEventListener("resize", refresh);
  plot.addEventListener("wheel", function (event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0025)), event.clientX - plot.getBoundingClientRect().left);
  }, { passive: false });
  plot.addEventListener("keydown", function (event) {
    var half = plot.clientWidth / 2;
    if (event.key === "+" || event.key === "=") zoomAt(1.6, half);
    else if (event.key === "-") zoomAt(1 / 1.6, half);
    else if (event.key === "0") zoomTo(start, end);
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    var what = button && button.dataset.do;
    if (what === "in") zoomAt(2, plot.clientWidth / 2);
    if (what === "out") zoomAt(0.5, plot.clientWidth / 2);
    if (what === "all") zoomTo(start, end);
  });
  plot.addEventListener("dblclick", function () { zoomTo(start, end); });

  // -- dragging over the drawing marks what to zoom into
  var drag = null, brush = document.createElement("div");
  brush.className = "brush";
  plot.addEventListener("pointerdown", function (event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    var box = plot.getBoundingClientRect();
    if (event.clientY - box.top > plot.clientHeight) return; // the scroll bar
    drag = { x: event.clientX - box.left + plot.scrollLeft, moved: false };
  });
  addEventListener("pointermove", function (event) {
    if (!drag) return;
    var x = event.clientX - plot.getBoundingClientRect().left + plot.scrollLeft;
    if (!drag.moved && Math.abs(x - drag.x) < 5) return;
    if (!drag.moved) wide.appendChild(brush);
    drag.moved = true;
    tip.hidden = true;
    drag.to = Math.min(width(), Math.max(0, x));
    brush.style.left = Math.min(drag.x, drag.to) + "px";
    brush.style.width = Math.abs(drag.to - drag.x) + "px";
  });
  addEventListener("pointerup", function () {
    if (!drag) return;
    var done = drag;
    drag = null;
    if (!done.moved) return;
    brush.remove();
    // The click that ends a drag must not follow a flag under the pointer; it comes, if at all, before the timer.
    function eat(event) { event.preventDefault(); event.stopPropagation(); }
    addEventListener("click", eat, true);
    setTimeout(function () { removeEventListener("click", eat, true); }, 0);
    zoomTo(start + Math.min(done.x, done.to) / width() * span, start + Math.max(done.x, done.to) / width() * span);
  });

  // -- the small map: drag its window, or click to go there
  var hold = null;
  function share(event) {
    var box = over.getBoundingClientRect();
    return (event.clientX - box.left) / box.width;
  }
  over.addEventListener("pointerdown", function (event) {
    var at = share(event), left = plot.scrollLeft / width(), size = plot.clientWidth / width();
    hold = at >= left && at <= left + size ? at - left : size / 2;
    over.setPointerCapture(event.pointerId);
    plot.scrollLeft = (at - hold) * width();
  });
  over.addEventListener("pointermove", function (event) {
    if (hold !== null) plot.scrollLeft = (share(event) - hold) * width();
  });
  over.addEventListener("pointerup", function () { hold = null; });

  // -- a finding: its pins, its stretch of time, its words below the drawing
  var order = Array.prototype.map.call(svg.querySelectorAll(".finding"), function (group) { return group.id.slice(3); });
  function focus(anchor) {
    var group = document.getElementById("at-" + anchor);
    each(".finding.on", function (other) { other.classList.remove("on"); }, svg);
    panel.textContent = "";
    panel.classList.toggle("on", !!group);
    if (!group) return;
    group.classList.add("on");
    var a = parseFloat(group.dataset.a), b = parseFloat(group.dataset.b);
    var air = Math.max((b - a) * 0.35, span / 200, 0.02);
    zoomTo(Math.max(start, a - air), Math.min(end, b + air));
    var card = document.getElementById(anchor);
    if (card) {
      var copy = card.cloneNode(true), head = copy.querySelector(".head");
      copy.removeAttribute("id");
      each("a", function (link) { link.remove(); }, copy);
      var index = order.indexOf(anchor);
      [["‹ previous", index - 1], ["next ›", index + 1]].forEach(function (way) {
        if (way[1] < 0 || way[1] >= order.length) return;
        var link = document.createElement("a");
        link.href = "#at-" + order[way[1]];
        link.textContent = way[0];
        head.appendChild(link);
      });
      var away = document.createElement("button");
      away.type = "button";
      away.textContent = "close";
      away.addEventListener("click", function () { history.replaceState(null, "", "#timeline"); focus(""); });
      head.appendChild(away);
      panel.appendChild(copy);
    }
    document.getElementById("timeline").scrollIntoView();
  }
  function go() {
    var name = decodeURIComponent(location.hash.slice(1));
    if (name.slice(0, 3) === "at-") focus(name.slice(3));
    else if (document.getElementById("at-" + name) && !document.getElementById(name)) focus(name);
  }
  addEventListener("hashchange", go);
  document.addEventListener("click", function (event) {
    var link = event.target.closest("a");
    if (link && link.closest("svg") && link.classList.contains("flag")) {
      event.preventDefault();
      var anchor = link.getAttribute("href").slice(1);
      if (location.hash === "#at-" + anchor) focus(anchor);
      else location.hash = "at-" + anchor;
    } else if (link && link.hash && link.hash === location.hash) go();
  });

  refresh();
  go();
})();
