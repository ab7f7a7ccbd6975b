// peer-go ADDR: what the example hello answers, by net/http on one thread of execution.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
)

const page = "<h1>Hello World</h1>"

func main() {
	runtime.GOMAXPROCS(1)
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	body, length := []byte(page), strconv.Itoa(len(page))
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Length", length)
		_, _ = w.Write(body)
	})
	log.Fatal(http.Serve(listener, nil))
}
