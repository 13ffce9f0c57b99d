// Draws window.DASHBOARD, the upper part of a dashboard with its data, with Grafana's own components.

import { createTheme, dateTime, FieldType, getDisplayProcessor, ThemeContext } from "@grafana/data";
import { BigValue, GlobalStyles, PanelChrome, TimeSeries } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import "@fontsource/inter/latin-400.css";
import "@fontsource/inter/latin-500.css";
import "uplot/dist/uPlot.min.css";
import "./page.css";

const COLUMN = 640 / 24, ROW = 38, GAP = 8; // pixels
const theme = createTheme({ colors: { mode: "light" } });
const { panels, from, till } = window.DASHBOARD;
const timeRange = { from: dateTime(from * 1000), to: dateTime(till * 1000) };

const named = (format, labels) => format.replace(/{{(\w+)}}/g, (_, label) => labels[label] ?? "");

// JSON has no -Infinity, and the dashboard says null, which has got lost.
const stepsOf = (thresholds) => thresholds?.steps.map((step) => ({ value: -Infinity, ...step }));

function fieldOf(panel, target, series) {
  const { defaults } = panel.fieldConfig;
  const values = series.values.map(([, value]) => Number(value));
  const min = Math.min(...values), max = Math.max(...values);
  const field = {
    name: "Value", type: FieldType.number, values, state: { range: { min, max, delta: max - min } },
    config: {
      ...defaults, thresholds: { ...defaults.thresholds, steps: stepsOf(defaults.thresholds) },
      displayNameFromDS: named(target.legendFormat || panel.title, series.metric),
      color: { mode: panel.type === "stat" ? "thresholds" : "palette-classic" },
    },
  };
  field.display = getDisplayProcessor({ field, theme });
  return field;
}

function framesOf(panel) {
  const pairs = panel.targets.flatMap((target) => target.result.map((series) => [
    { name: "Time", type: FieldType.time, values: series.values.map(([at]) => at * 1000), config: {} },
    fieldOf(panel, target, series),
  ]));
  pairs.forEach(([, field], i) => { field.state.seriesIndex = i; });
  return pairs.map((fields) => ({ fields, length: fields[0].values.length }));
}

function Stat({ panel, width, height }) {
  const [time, field] = framesOf(panel)[0].fields;
  return <BigValue theme={theme} width={width} height={height} value={field.display(field.values.at(-1))}
    colorMode={panel.options.colorMode} graphMode={panel.options.graphMode} sparkline={{ x: time, y: field }} />;
}

function Series({ panel, width, height }) {
  return <TimeSeries frames={framesOf(panel)} timeRange={timeRange} timeZone="utc" width={width} height={height}
    legend={{ calcs: [], showLegend: true, ...panel.options.legend }} options={panel.options} />;
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const Content = panel.type === "stat" ? Stat : Series;
  return <div style={{ position: "absolute", left: x * COLUMN + GAP / 2, top: y * ROW + GAP / 2 }}>
    <PanelChrome title={panel.title} width={w * COLUMN - GAP} height={h * ROW - GAP}>
      {(width, height) => <Content panel={panel} width={width} height={height} />}
    </PanelChrome>
  </div>;
}

createRoot(document.getElementById("root")).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    {panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
  </ThemeContext.Provider>,
);
