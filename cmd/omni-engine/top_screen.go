package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// screen is the terminal that top draws on, or the file that it prints to.
type screen struct {
	out     io.Writer
	in, tty *os.File // nil: none
	colours bool
	before  *unix.Termios
}

const (
	plainWidth = 100 // of a frame that goes to a file
	leastWidth = 40
)

// openScreen reports whether out is a terminal that can be drawn on.
func openScreen(in io.Reader, out io.Writer) (*screen, bool) {
	s := &screen{out: out}
	f, ok := out.(*os.File)
	if !ok {
		return s, false
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil || os.Getenv("TERM") == "dumb" {
		return s, false
	}
	s.tty, s.colours = f, os.Getenv("NO_COLOR") == ""
	if k, ok := in.(*os.File); ok {
		s.in = k
	}
	return s, true
}

// size is the terminal's, in characters; COLUMNS or 100 wide where there is none.
func (s *screen) size() (width, height int) {
	if s.tty != nil {
		if w, err := unix.IoctlGetWinsize(int(s.tty.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 0 {
			return max(int(w.Col), leastWidth), max(int(w.Row), 1)
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return max(n, leastWidth), 0
	}
	return plainWidth, 0
}

// enter takes the alternate screen and hides the cursor. Keys are read one by one and not echoed; Ctrl-C stays a signal.
func (s *screen) enter() error {
	if s.in != nil {
		t, err := unix.IoctlGetTermios(int(s.in.Fd()), unix.TCGETS)
		if err == nil {
			before := *t
			s.before = &before
			t.Lflag &^= unix.ICANON | unix.ECHO
			t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 0, 1 // a read returns after a tenth of a second, so that the reader can end
			if err := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, t); err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(s.out, "\x1b[?1049h\x1b[?25l\x1b[2J")
	return err
}

// leave gives the terminal back as it was.
func (s *screen) leave() {
	_, _ = io.WriteString(s.out, "\x1b[0m\x1b[?25h\x1b[?1049l")
	if s.before != nil {
		_ = unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, s.before)
	}
}

// watch calls stop when q is pressed, and returns when ctx ends.
func (s *screen) watch(ctx context.Context, stop func()) {
	if s.before == nil {
		<-ctx.Done()
		return
	}
	buf := make([]byte, 16)
	for ctx.Err() == nil {
		n, err := unix.Read(int(s.in.Fd()), buf)
		if err != nil && err != unix.EINTR && err != unix.EAGAIN {
			<-ctx.Done()
			return
		}
		for _, key := range buf[:max(n, 0)] {
			if key == 'q' || key == 'Q' {
				stop()
			}
		}
	}
}

func (s *screen) clear() { _, _ = io.WriteString(s.out, "\x1b[2J") }

// draw writes a frame over the last one in one go, so that it does not flicker.
func (s *screen) draw(lines []string) {
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[H") // synchronised output, where the terminal knows it
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l + "\x1b[K")
	}
	b.WriteString("\x1b[J\x1b[?2026l")
	_, _ = io.WriteString(s.out, b.String())
}
