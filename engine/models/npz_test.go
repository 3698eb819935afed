package models_test

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// array is a numpy array, widened to float64.
type array struct {
	shape []int
	data  []float64
}

// row returns row i of a matrix as float32.
func (a array) row(i int) []float32 {
	w := a.shape[len(a.shape)-1]
	out := make([]float32, w)
	for j := range out {
		out[j] = float32(a.data[i*w+j])
	}
	return out
}

func (a array) floats() []float32 {
	out := make([]float32, len(a.data))
	for i, v := range a.data {
		out[i] = float32(v)
	}
	return out
}

// npz reads the arrays of a numpy archive.
func npz(t testing.TB, path string) map[string]array {
	t.Helper()
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer z.Close()
	out := map[string]array{}
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		raw, err := io.ReadAll(r)
		require.NoError(t, err)
		out[strings.TrimSuffix(f.Name, ".npy")], err = npy(raw)
		require.NoError(t, err, f.Name)
	}
	return out
}

func npy(raw []byte) (a array, err error) {
	at, n := 10, int(binary.LittleEndian.Uint16(raw[8:]))
	if raw[6] > 1 {
		at, n = 12, int(binary.LittleEndian.Uint32(raw[8:]))
	}
	head, body := string(raw[at:at+n]), raw[at+n:]
	descr := regexp.MustCompile(`'descr': '[<|]?(\w+)'`).FindStringSubmatch(head)
	shape := regexp.MustCompile(`'shape': \(([^)]*)\)`).FindStringSubmatch(head)
	if descr == nil || shape == nil {
		return a, fmt.Errorf("header %q", head)
	}
	count := 1
	for _, s := range strings.Split(shape[1], ",") {
		if s = strings.TrimSpace(s); s != "" {
			d, err := strconv.Atoi(s)
			if err != nil {
				return a, err
			}
			a.shape, count = append(a.shape, d), count*d
		}
	}
	le := binary.LittleEndian
	for i := range count {
		var v float64
		switch descr[1] {
		case "f4":
			v = float64(math.Float32frombits(le.Uint32(body[4*i:])))
		case "f8":
			v = math.Float64frombits(le.Uint64(body[8*i:]))
		case "i4":
			v = float64(int32(le.Uint32(body[4*i:])))
		case "i8":
			v = float64(int64(le.Uint64(body[8*i:])))
		case "f2":
			v = half(le.Uint16(body[2*i:]))
		default:
			return a, fmt.Errorf("type %s", descr[1])
		}
		a.data = append(a.data, v)
	}
	if strings.Contains(head, "'fortran_order': True") && len(a.shape) == 2 {
		rows, cols := a.shape[0], a.shape[1]
		byRow := make([]float64, count)
		for i := range count {
			byRow[i%rows*cols+i/rows] = a.data[i]
		}
		a.data = byRow
	}
	return a, nil
}

func half(h uint16) float64 {
	s := 1.0
	if h>>15 == 1 {
		s = -1
	}
	if e := int(h >> 10 & 31); e > 0 {
		return s * math.Ldexp(1+float64(h&1023)/1024, e-15)
	}
	return s * math.Ldexp(float64(h&1023), -24)
}
