// Static-go is an example skill in one static binary: it summarises the
// numeric columns of a CSV file. Parameters come from the file named by
// SKILLBOX_PARAMS_FILE, the result goes to the file named by
// SKILLBOX_RESULT_FILE, and so stdout is free for words to a person.
package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// A summary is what a CSV file comes to. Columns holds, in the file's order,
// those with at least one number; Skipped counts their cells that were neither
// empty nor a finite number.
type summary struct {
	Rows    int      `json:"rows"`
	Columns []column `json:"columns"`
	Skipped int      `json:"skipped"`
}

type column struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Mean  float64 `json:"mean"`

	skipped int
}

func main() {
	result, err := run(os.Getenv("SKILLBOX_PARAMS_FILE"))
	if err == nil {
		fmt.Printf("read %d rows, found %d numeric columns\n", result.Rows, len(result.Columns))
		err = write(os.Getenv("SKILLBOX_RESULT_FILE"), result)
	} else {
		err = errors.Join(err, write(os.Getenv("SKILLBOX_RESULT_FILE"), map[string]string{"error": err.Error()}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "static-go:", err)
		os.Exit(1)
	}
}

func run(paramsFile string) (summary, error) {
	if paramsFile == "" {
		return summary{}, errors.New("no parameters: run with --params JSON")
	}
	var params struct{ Path, CSV string }
	if data, err := os.ReadFile(paramsFile); err != nil {
		return summary{}, fmt.Errorf("parameters: %w", err)
	} else if err := json.Unmarshal(data, &params); err != nil {
		return summary{}, fmt.Errorf("parameters: %w", err)
	}
	switch {
	case params.CSV != "":
		return summarise(strings.NewReader(params.CSV))
	case params.Path != "":
		file, err := os.Open(params.Path)
		if err != nil {
			return summary{}, err
		}
		defer file.Close()
		return summarise(file)
	}
	return summary{}, errors.New(`give "path", a file such as /input/sales.csv, or "csv", the text itself`)
}

// summarise reads the CSV row by row; its first row names the columns.
func summarise(in io.Reader) (summary, error) {
	rows := csv.NewReader(in)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err == io.EOF {
		return summary{}, errors.New("the CSV is empty")
	} else if err != nil {
		return summary{}, err
	}
	columns := make([]column, len(header))
	for i, name := range header {
		columns[i].Name = name
	}

	result := summary{Columns: []column{}}
	for {
		row, err := rows.Read()
		if err == io.EOF {
			break
		} else if err != nil {
			return summary{}, err
		}
		result.Rows++
		for i, cell := range row {
			columns[i].add(strings.TrimSpace(cell))
		}
	}
	for _, c := range columns {
		if c.Count > 0 {
			result.Columns = append(result.Columns, c)
			result.Skipped += c.skipped
		}
	}
	return result, nil
}

func (c *column) add(cell string) {
	if cell == "" {
		return
	}
	value, err := strconv.ParseFloat(cell, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		c.skipped++ // JSON has no NaN and no infinity either
		return
	}
	if c.Count == 0 {
		c.Min, c.Max = value, value
	}
	c.Count++
	c.Min, c.Max = min(c.Min, value), max(c.Max, value)
	// The running mean, and not a sum, which could overflow.
	c.Mean += value/float64(c.Count) - c.Mean/float64(c.Count)
}

func write(resultFile string, result any) error {
	data, err := json.Marshal(result)
	if err != nil {
		return err
	}
	return os.WriteFile(resultFile, append(data, '\n'), 0o600)
}
