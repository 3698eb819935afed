package template

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats t as Python's datetime.strftime does in the C locale on glibc, with its flags -, _, 0, ^.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 >= len(format) {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		s, ok := timeField(t, format[i], flag)
		if !ok {
			s = format[start : i+1]
		}
		b.WriteString(s)
	}
	return b.String()
}

// timeField gives one conversion.
func timeField(t time.Time, c, flag byte) (string, bool) {
	if n, width, pad, ok := timeNumber(t, c); ok {
		switch flag {
		case '-':
			width = 0
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		s := fmt.Sprint(n)
		if len(s) < width {
			s = strings.Repeat(string(pad), width-len(s)) + s
		}
		return s, true
	}
	layout := map[byte]string{
		'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'p': "PM", 'Z': "MST", 'z': "-0700",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05",
		'R': "15:04", 'r': "03:04:05 PM",
	}[c]
	var s string
	switch {
	case layout != "":
		s = t.Format(layout)
	case c == 'P':
		s = strings.ToLower(t.Format("PM"))
	case c == 'f':
		s = fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case c == '%':
		s = "%"
	case c == 'n':
		s = "\n"
	case c == 't':
		s = "\t"
	default:
		return "", false
	}
	if c == 'Z' || c == 'z' {
		s = "" // Python's datetime.now() has no zone
	}
	if flag == '^' {
		s = strings.ToUpper(s)
	}
	return s, true
}

// timeNumber gives the conversions that are numbers, with their width and padding.
func timeNumber(t time.Time, c byte) (n, width int, pad byte, ok bool) {
	hour12 := (t.Hour()+11)%12 + 1
	isoYear, isoWeek := t.ISOWeek()
	switch c {
	case 'Y':
		return t.Year(), 0, '0', true
	case 'y':
		return t.Year() % 100, 2, '0', true
	case 'C':
		return t.Year() / 100, 2, '0', true
	case 'm':
		return int(t.Month()), 2, '0', true
	case 'd':
		return t.Day(), 2, '0', true
	case 'e':
		return t.Day(), 2, ' ', true
	case 'H':
		return t.Hour(), 2, '0', true
	case 'k':
		return t.Hour(), 2, ' ', true
	case 'I':
		return hour12, 2, '0', true
	case 'l':
		return hour12, 2, ' ', true
	case 'M':
		return t.Minute(), 2, '0', true
	case 'S':
		return t.Second(), 2, '0', true
	case 'j':
		return t.YearDay(), 3, '0', true
	case 'u':
		return (int(t.Weekday())+6)%7 + 1, 0, '0', true
	case 'w':
		return int(t.Weekday()), 0, '0', true
	case 'U':
		return (t.YearDay() + 6 - int(t.Weekday())) / 7, 2, '0', true
	case 'W':
		return (t.YearDay() + 6 - (int(t.Weekday())+6)%7) / 7, 2, '0', true
	case 'V':
		return isoWeek, 2, '0', true
	case 'G':
		return isoYear, 0, '0', true
	case 'g':
		return isoYear % 100, 2, '0', true
	case 's':
		return int(t.Unix()), 0, '0', true
	}
	return 0, 0, 0, false
}
