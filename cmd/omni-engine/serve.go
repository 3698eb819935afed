package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"omni-engine/internal/config"
)

func serveCommand() *cobra.Command {
	loader := config.NewLoader()
	var printConfig bool
	cmd := &cobra.Command{
		Use:   "serve [MODEL]",
		Short: "Serve a model over the OpenAI API: a GGUF file, a Hugging Face directory, or a hub id",
		Long: "Serve a model: a GGUF file, a Hugging Face directory (config.json, *.safetensors, tokenizer.json), or a hub id (org/name),\n" +
			"which is looked up in huggingface_hub's cache and fetched if it is not there (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE).\n" +
			"Without a model: the one that `make model` fetched, else " + config.DefaultModel + " from the hub.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loader.Load(cmd.Flags(), args, os.Getenv)
			if err != nil {
				return configError{err}
			}
			if printConfig {
				return loader.Print(cmd.OutOrStdout())
			}
			return serve(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	loader.Register(cmd.Flags())
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "print every value with its origin, and end")
	return cmd
}

// serve runs a server until ctx ends, then drains it.
func serve(ctx context.Context, cfg *config.Serve, stderr io.Writer) error {
	log := newLogger(cfg, stderr)
	secure, err := certificate(cfg) // before the model: a wrong path is told at once
	if err != nil {
		return err
	}
	if err := checkTracing(cfg); err != nil {
		return configError{err}
	}
	listener, err := listen(cfg)
	if err != nil {
		return err
	}
	defer listener.Close()
	a, err := newApp(ctx, cfg, log)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		log.Info("stopped while the model was loaded")
		return a.close(context.Background())
	}
	server := &http.Server{TLSConfig: secure, Handler: a.handler, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return a.requests }}
	served := make(chan error, 1)
	go func() {
		if secure != nil {
			served <- server.ServeTLS(listener, "", "")
			return
		}
		served <- server.Serve(listener)
	}()
	if err := announce(cfg, listener, log); err != nil {
		return errors.Join(err, server.Close(), a.close(context.Background()))
	}
	select {
	case err := <-served:
		return errors.Join(fmt.Errorf("http server: %w", err), a.close(context.Background()))
	case <-ctx.Done():
	}
	again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return shutdown(again, server, a, cfg.ShutdownTimeout, log)
}

// certificate reads the TLS files; nil without them.
func certificate(cfg *config.Serve) (*tls.Config, error) {
	if cfg.SSLCertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(cfg.SSLCertFile, cfg.SSLKeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading --ssl-certfile %s and --ssl-keyfile %s: %w", cfg.SSLCertFile, cfg.SSLKeyFile, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// shutdown stops accepting, lets running requests finish for the set time, aborts the rest, and ends in good order.
// The end of again, a second signal, ends the patience.
func shutdown(again context.Context, server *http.Server, a *app, patience time.Duration, log *slog.Logger) error {
	log.Info("shutting down", "drain_seconds", patience.Seconds())
	drain, cancel := context.WithTimeout(again, patience)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		log.Warn("the requests that still run are aborted", "error", err)
		a.abort() // ends every request's context: answers end, blocks are freed
		last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
	}
	rest, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := a.close(rest)
	log.Info("stopped")
	return err
}

// listen binds the address; a port that is in use is told with what to do.
func listen(cfg *config.Serve) (net.Listener, error) {
	if cfg.UDS != "" {
		l, err := net.Listen("unix", cfg.UDS)
		if err != nil {
			return nil, fmt.Errorf("listening on the unix socket %s: %w", cfg.UDS, err)
		}
		return l, nil
	}
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w. Choose another port with --port (0 picks a free one)", address, err)
	}
	return l, nil
}

func announce(cfg *config.Serve, l net.Listener, log *slog.Logger) error {
	log.Info("ready", "address", l.Addr().String())
	if cfg.PortFile == "" {
		return nil
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("--port-file needs a TCP port, not %s", l.Addr())
	}
	if err := os.WriteFile(cfg.PortFile, []byte(strconv.Itoa(tcp.Port)+"\n"), 0o644); err != nil {
		return fmt.Errorf("--port-file: %w", err)
	}
	return nil
}
