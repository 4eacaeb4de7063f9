// Command registry is an OCI registry for charts: the one that go-containerregistry tests itself with, on loopback, with TLS.
// What is pushed is kept in memory and gone with the process.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	certificate := flag.String("cert", "", "PEM file with the server's certificate")
	key := flag.String("key", "", "PEM file with its private key")
	portFile := flag.String("port-file", "", "file that the address in use is written to")
	user := flag.String("user", "", "who may come in; empty lets everybody")
	password := flag.String("password", "", "what that user must say")
	flag.Parse()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	// Whoever waits for the file must not read half of it.
	partial := *portFile + ".partial"
	if err := os.WriteFile(partial, []byte(listener.Addr().String()), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := os.Rename(partial, *portFile); err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler:           guarded(registry.New(registry.Logger(log.New(io.Discard, "", 0))), *user, *password),
	}
	log.Fatal(server.ServeTLS(listener, *certificate, *key))
}

// guarded asks for a name and a password, if there are any.
func guarded(next http.Handler, user, password string) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		name, said, _ := request.BasicAuth()
		if user != "" && (name != user || said != password) {
			writer.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(writer, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(writer, request)
	})
}
