// peer-gin ADDR [json]: what the examples hello and json answer, by Gin on one thread of execution.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"

	"github.com/gin-gonic/gin"
)

type health struct {
	Status string `json:"status"`
}

func main() {
	runtime.GOMAXPROCS(1)
	gin.SetMode(gin.ReleaseMode)
	address := "127.0.0.1:8080"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	engine := gin.New()
	page := []byte("<h1>Hello World</h1>")
	answer := func(c *gin.Context) { c.Data(http.StatusOK, "text/html", page) }
	if slices.Contains(os.Args, "json") {
		answer = func(c *gin.Context) { c.JSON(http.StatusOK, health{"ok"}) }
	}
	engine.GET("/", answer)
	log.Fatal(http.Serve(listener, engine))
}
