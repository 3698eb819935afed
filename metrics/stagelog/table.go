package stagelog

import (
	"fmt"
	"strconv"
	"strings"

	"omni-engine/metrics/record"
)

// column is one column of a table: its head and its cells by field name. A field that it lacks prints blank.
type column struct {
	head  string
	cells record.Row
}

// has finds a cell; a column may lack it, which is not the same as holding an absent value.
func (c *column) has(name string) (record.Value, bool) {
	for i := range c.cells {
		if c.cells[i].Name == name {
			return c.cells[i].Value, true
		}
	}
	return record.Value{}, false
}

// render draws a titled table in PrettyTable's default style: first column left, the others right. fields gives the rows in
// order; a row is left out when drop says so. It returns "" when no row is left.
func render(title string, fields []string, columns []column, split map[string]bool) string {
	rows := [][]string{append([]string{"Field"}, heads(columns)...)}
	for _, name := range fields {
		if !shown(name, columns, split[name]) {
			continue
		}
		row := []string{name}
		for i := range columns {
			v, ok := columns[i].has(name)
			if !ok {
				row = append(row, "")
				continue
			}
			row = append(row, format(v))
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return ""
	}
	return "\n[" + title + "]\n" + box(rows)
}

// heads gives a repeated head the suffix _2, _3, ….
func heads(columns []column) []string {
	seen := map[string]int{}
	out := make([]string, len(columns))
	for i, c := range columns {
		if seen[c.head]++; seen[c.head] > 1 {
			out[i] = c.head + "_" + strconv.Itoa(seen[c.head])
		} else {
			out[i] = c.head
		}
	}
	return out
}

// shown is the rule by which a row is dropped. vLLM-Omni's: every cell is 0, absent or empty, but lists always print. For the
// phase split and the waits: absent in every column; a measured 0 is shown (PS-20).
func shown(name string, columns []column, split bool) bool {
	for i := range columns {
		v, ok := columns[i].has(name)
		switch {
		case !ok || !v.IsSet():
		case split, v.Kind == record.List, v.Kind == record.Text, v.Number() != 0:
			return true
		}
	}
	return false
}

// format prints a value: 1,234 or 1,234.567, a list as its mean with its length, an absent value as None.
func format(v record.Value) string {
	switch v.Kind {
	case record.Int:
		return thousands(strconv.Itoa(v.Int()))
	case record.Float:
		return thousands(strconv.FormatFloat(v.Number(), 'f', 3, 64))
	case record.Text:
		return v.Text()
	case record.List:
		if len(v.List()) == 0 {
			return ""
		}
		return fmt.Sprintf("%s (n=%d)", thousands(strconv.FormatFloat(v.Mean(), 'f', 3, 64)), len(v.List()))
	}
	return "None"
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	whole, rest := digits, ""
	if i := strings.IndexByte(digits, '.'); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return sign + whole + rest
}

func box(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var rule strings.Builder
	for _, w := range widths {
		rule.WriteString("+" + strings.Repeat("-", w+2))
	}
	rule.WriteString("+")
	out := []string{rule.String()}
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			pad := strings.Repeat(" ", widths[j]-len(cell))
			if j == 0 {
				line.WriteString("| " + cell + pad + " ")
			} else {
				line.WriteString("| " + pad + cell + " ")
			}
		}
		out = append(out, line.String()+"|")
		if i == 0 {
			out = append(out, rule.String())
		}
	}
	return strings.Join(append(out, rule.String()), "\n")
}
