"use strict";
(function () {
  var plots = JSON.parse(document.getElementById("plots").textContent);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var escaped = function (text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  };
  var colour = function (name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  };
  var paint = function () {
    return {ink: colour("--ink"), grid: colour("--grid"), box: colour("--box"), line: colour("--line")};
  };
  var axis = function (paint, more) {
    return Object.assign({gridcolor: paint.grid, linecolor: paint.line, zerolinecolor: paint.grid,
      automargin: true, fixedrange: false}, more);
  };
  var layout = function (plot) {
    var now = paint();
    var x = plot.time ? {type: "date"} : {type: plot.logx ? "log" : "linear", title: {text: plot.xlabel}};
    var y = {type: plot.logy ? "log" : "linear", title: {text: plot.ylabel}};
    if (!plot.logy) { y.rangemode = "tozero"; }
    if (plot.percent) { y.range = [0, 102]; }
    if (plot.logy) { y.dtick = 1; }
    if (plot.ticks) { y.tickvals = plot.ticks.places; y.ticktext = plot.ticks.texts; }
    return {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {color: now.ink, size: 12},
      margin: {l: 48, r: 12, t: 8, b: 40}, showlegend: false, hovermode: plot.time ? "x unified" : "closest",
      modebar: {bgcolor: "rgba(0,0,0,0)", color: now.line, activecolor: now.ink},
      hoverlabel: {bgcolor: now.box, bordercolor: now.line, font: {color: now.ink}},
      xaxis: axis(now, x), yaxis: axis(now, y),
      shapes: plot.mark === null ? [] : [{type: "line", xref: "x", yref: "paper", x0: plot.mark, x1: plot.mark,
        y0: 0, y1: 1, line: {color: "#D55E00", width: 1.5, dash: "dot"}}]};
  };
  var traces = function (plot) {
    return plot.lines.map(function (line) {
      var short = escaped(line.whole.length > 60 ? line.label : line.whole);
      // A logarithmic axis has no zero: break the line there.
      var y = plot.logy ? line.y.map(function (value) { return value > 0 ? value : null; }) : line.y;
      return {type: "scatter", mode: y.length > 1 ? "lines" : "markers", x: plot.x, y: y, name: short, connectgaps: false,
        text: line.text || undefined, line: {color: line.colour, dash: line.dash, width: 2},
        hovertemplate: short + ": " + (line.text ? "%{text}" : plot.percent ? "%{y:.4~g} %" : "%{y:,.6~g}")
          + "<extra></extra>"};
    });
  };
  var config = {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"]};
  // Show the boxes first: a hidden element has no width.
  document.documentElement.classList.add("interactive");
  plots.forEach(function (plot) {
    var box = document.getElementById(plot.name + "-interactive");
    box.hidden = false;
    Plotly.newPlot(box, traces(plot), layout(plot), config);
  });
  var redraw = function () {
    plots.forEach(function (plot) { Plotly.relayout(plot.name + "-interactive", layout(plot)); });
  };
  if (dark.addEventListener) { dark.addEventListener("change", redraw); }
  var choice = document.getElementById("static-plots");
  if (choice) {
    choice.closest("p").hidden = false;
    choice.addEventListener("change", function () {
      document.documentElement.classList.toggle("interactive", !choice.checked);
      if (!choice.checked) { plots.forEach(function (plot) { Plotly.Plots.resize(plot.name + "-interactive"); }); }
    });
  }
})();
