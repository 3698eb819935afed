package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// command runs a program to its end and returns what it printed.
func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, clip(log.Bytes()))
	}
	return out.Bytes(), nil
}

// standardError runs a program to its end and returns what it logged.
func standardError(ctx context.Context, name string, args ...string) (string, error) {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, clip(log.Bytes()))
	}
	return log.String(), nil
}

// everything runs a program to its end and returns what it printed and logged.
func everything(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, clip(out))
	}
	return out, nil
}

// temporary writes a file that remove takes away.
func temporary(text string) (path string, remove func(), err error) {
	f, err := os.CreateTemp("", "bench-cpu")
	if err != nil {
		return "", nil, err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", nil, errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), func() { _ = os.Remove(f.Name()) }, nil
}

// clip is the end of a program's output, for an error.
func clip(b []byte) []byte {
	b = bytes.TrimSpace(b)
	if len(b) > 800 {
		b = b[len(b)-800:]
	}
	return b
}

// server is a running engine that listens.
type server struct {
	base     string // URL; empty until the port is known
	portFile string
	began    time.Time
	cmd      *exec.Cmd
	log      *bytes.Buffer
	ended    chan struct{}
	cleanup  func()
	kept     bool // stop leaves it running: other works go on with it
}

// start begins a server's process. Where portFile is set the server writes its port there once it listens.
func start(ctx context.Context, base, portFile, name string, args ...string) (*server, error) {
	s := &server{base: base, portFile: portFile, log: &bytes.Buffer{}, ended: make(chan struct{}), cleanup: func() {}}
	s.cmd = exec.CommandContext(ctx, name, args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.began = time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = s.cmd.Wait() // its end is told with the log
		close(s.ended)
	}()
	return s, nil
}

// url waits for the port.
func (s *server) url(ctx context.Context) (string, error) {
	for s.base == "" {
		raw, err := os.ReadFile(s.portFile)
		if port := strings.TrimSpace(string(raw)); err == nil && port != "" && strings.HasSuffix(string(raw), "\n") {
			s.base = "http://127.0.0.1:" + port
			break
		}
		if err := s.pause(ctx); err != nil {
			return "", err
		}
	}
	return s.base, nil
}

// pause is a short wait that ends early when the server dies.
func (s *server) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ended:
		return fmt.Errorf("%s ended: %s", s.cmd.Path, clip(s.log.Bytes()))
	case <-time.After(3 * time.Millisecond):
		return nil
	}
}

// stop ends the process and those that it started: politely, then not.
func (s *server) stop() {
	if s.kept {
		return
	}
	defer s.cleanup()
	members := family(s.cmd.Process.Pid)
	defer func() { endFamily(members) }()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrProcessDone) {
		return
	}
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
