// peer-go ADDR [json]: what the examples hello and json answer, by net/http on one thread of execution.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
)

const page = "<h1>Hello World</h1>"

type health struct {
	Status string `json:"status"`
}

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
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Length", length)
		_, _ = w.Write(body)
	}
	if slices.Contains(os.Args, "json") {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			text, err := json.Marshal(health{"ok"})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text)
		}
	}
	http.HandleFunc("/", answer)
	log.Fatal(http.Serve(listener, nil))
}
