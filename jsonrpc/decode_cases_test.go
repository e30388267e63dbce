package jsonrpc

var decodeCases = []struct{ frame, want string }{
	// Requests and notifications, specification section 4.
	{
		`{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}`,
		`call id:1 m:subtract p:[42,23]`,
	},
	{
		`{"jsonrpc":"2.0","method":"subtract","params":{"a":42},"id":"x"}`,
		`call id:"x" m:subtract p:{"a":42}`,
	},
	{`{"jsonrpc":"2.0","method":"update"}`, `note m:update`},
	{`{"jsonrpc":"2.0","method":"update","params":[]}`, `note m:update p:[]`},
	{`{"jsonrpc":"2.0","method":"","id":1}`, `call id:1 m:`},
	{
		" \t\r\n{ \"jsonrpc\" : \"2.0\" , \"method\" : \"m\" , \"params\" : [ 1 ] , \"id\" : 7 } \n",
		`call id:7 m:m p:[ 1 ]`,
	},
	{`{"params":[1],"id":1,"method":"m","jsonrpc":"2.0"}`, `call id:1 m:m p:[1]`},
	{`{"id":1,"params":null,"jsonrpc":"2.0","method":"m"}`, `call id:1 m:m`},

	// Ids are kept as bytes.
	{`{"jsonrpc":"2.0","method":"m","id":1.0}`, `call id:1.0 m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":1.5}`, `call id:1.5 m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":-0}`, `call id:-0 m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":1e400}`, `call id:1e400 m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":9007199254740993}`, `call id:9007199254740993 m:m`},
	{
		`{"jsonrpc":"2.0","method":"m","id":1234567890123456789012345678901234567890}`,
		`call id:1234567890123456789012345678901234567890 m:m`,
	},
	{`{"jsonrpc":"2.0","method":"m","id":"a\u0041"}`, `call id:"a\u0041" m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":""}`, `call id:"" m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":"\ud800"}`, `call id:"\ud800" m:m`},
	{`{"jsonrpc":"2.0","method":"m","id":null}`, `call id:null m:m`},

	// Invalid ids.
	{`{"jsonrpc":"2.0","method":"m","id":true}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","method":"m","id":{}}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","method":"m","id":[1]}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","method":"m","id":1,"id":1}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","id":1,"method":"m","id":2}`, `invalid id:null -32600`},

	// The version.
	{`{"method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"1.0","method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":2.0,"method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":null,"method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0 ","method":"m"}`, `invalid id:null -32600`},
	{`{"jsonrpc":"\u0032.0","method":"m","id":1}`, `call id:1 m:m`},

	// Names with escapes are those names; other cases are other names.
	{`{"jsonrpc":"2.0","\u006dethod":"m","id":1}`, `call id:1 m:m`},
	{
		`{"\u006a\u0073\u006f\u006e\u0072\u0070\u0063":"2.0","method":"m","\u0069\u0064":1}`,
		`call id:1 m:m`,
	},
	{`{"jsonrpc":"2.0","method":"\u006d\/x","id":1}`, `call id:1 m:m/x`},
	{`{"jsonrpc":"2.0","Method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","Method":"other","method":"m","ID":5,"Params":3}`, `note m:m`},
	{
		`{"jsonrpc":"2.0","method ":"x","method":"m","traceparent":"00","\u0074raceparent":1}`,
		`note m:m`,
	},

	// Members given twice.
	{`{"jsonrpc":"2.0","method":"m","method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":"m","\u006dethod":"x","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","\u006dethod":"x","id":1,"method":"m"}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","jsonrpc":"2.0","method":"m","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":"m","params":[],"params":[],"id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","result":1,"result":1,"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","result":1,"id":1,"id":1}`, `answer id:null -32600`},
	{`{"jsonrpc":"2.0","method":"m","x":1,"x":2}`, `note m:m`},

	// Methods and params.
	{`{"jsonrpc":"2.0","method":1,"params":"bar"}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","method":null,"id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":["m"],"id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":"m","params":"bar","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":"m","params":1}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","method":"m","params":false,"id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","id":1,"params":[]}`, `invalid id:1 -32600`},
	{`{"foo":"boo"}`, `invalid id:null -32600`},
	{`{}`, `invalid id:null -32600`},
	{`{"jsonrpc":"2.0","method":"m","result":1,"id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":"m","error":{"code":1,"message":""},"id":1}`, `invalid id:1 -32600`},
	{`{"jsonrpc":"2.0","method":"m","result":1}`, `invalid id:null -32600`},
	{`1`, `invalid id:null -32600`},
	{`"text"`, `invalid id:null -32600`},
	{`null`, `invalid id:null -32600`},

	// Responses, specification section 5.
	{`{"jsonrpc":"2.0","result":19,"id":1}`, `answer id:1 r:19`},
	{`{"jsonrpc":"2.0","result":null,"id":1}`, `answer id:1 r:null`},
	{`{"jsonrpc":"2.0","result":{"a":[]},"id":"1","x":1}`, `answer id:"1" r:{"a":[]}`},
	{
		`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":"1"}`,
		`answer id:"1" e:{"code":-32601,"message":"Method not found"}`,
	},
	{
		`{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error","data":null},"id":null}`,
		`answer id:null e:{"code":-32700,"message":"Parse error","data":null}`,
	},
	{
		`{"jsonrpc":"2.0","error":{"code":1.0,"message":"","x":1},"id":1}`,
		`answer id:1 e:{"code":1.0,"message":"","x":1}`,
	},
	{`{"jsonrpc":"2.0","result":1,"params":3,"id":1}`, `answer id:1 r:1`},

	// Malformed responses are responses, so that they get no answer.
	{`{"jsonrpc":"2.0","result":1}`, `answer id:null -32600`},
	{`{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","result":1,"error":null,"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","result":null,"error":{"code":1,"message":""},"id":1}`, `answer id:1 -32600`},
	{`{"result":1,"id":1}`, `answer id:1 -32600`},
	{`{"result":1,"error":null,"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","result":1,"id":{}}`, `answer id:null -32600`},
	{`{"jsonrpc":"2.0","error":null,"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":"text","id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":1},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"message":"m"},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":"1","message":"m"},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":1.5,"message":"m"},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":1e3,"message":"m"},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":4294967296,"message":"m"},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":1,"message":2},"id":1}`, `answer id:1 -32600`},
	{`{"jsonrpc":"2.0","error":{"code":1,"code":2,"message":"m"},"id":1}`, `answer id:1 -32600`},

	// Not JSON.
	{``, `-32700`},
	{" \r\n\t", `-32700`},
	{`{"jsonrpc":"2.0","method":"foobar, "params":"bar","baz]`, `-32700`},
	{"\uFEFF" + `{"jsonrpc":"2.0","method":"m","id":1}`, `-32700`},
	{"{\"jsonrpc\":\"2.0\",\"method\":\"m\xff\",\"id\":1}", `-32700`},
	{"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"x\xff\":1}", `-32700`},
	{"{\"jsonrpc\":\"2.0\",\"method\":\"a\tb\",\"id\":1}", `-32700`},
	{`{"jsonrpc":"2.0","method":"m","id":1}x`, `-32700`},
	{`{"jsonrpc":"2.0","method":"m","id":1}{"jsonrpc":"2.0","method":"m","id":2}`, `-32700`},
	{`{"jsonrpc":"2.0","method":"m","id":1,}`, `-32700`},
	{`{"jsonrpc":"2.0","method":"m","id":01}`, `-32700`},
	{`{"jsonrpc":"2.0","method":"m","id":}`, `-32700`},
	{`{"jsonrpc":"2.0" "method":"m"}`, `-32700`},
	{`{"jsonrpc"`, `-32700`},
	{`{"id":`, `-32700`},
	{`{"id"`, `-32700`},
	{`{`, `-32700`},
	{`{"jsonrpc":"2.0","method":"m","params":[tru],"id":1}`, `-32700`},
	{`{"jsonrpc":"2.0","method":"m","params":["\q"],"id":1}`, `-32700`},
	{`nul`, `-32700`},

	// Batches, specification section 6.
	{`[]`, `-32600`},
	{` [ ] `, `-32600`},
	{`[1]`, `[invalid id:null -32600]`},
	{`[1,"x",null]`, `[invalid id:null -32600, invalid id:null -32600, invalid id:null -32600]`},
	{
		`[[],[{"jsonrpc":"2.0","method":"m","id":1}]]`,
		`[invalid id:null -32600, invalid id:null -32600]`,
	},
	{
		`[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0",` +
			`"result":3,"id":1}]`, `[call id:1 m:a, note m:b, answer id:1 r:3]`,
	},
	{
		" [ {\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":1} \n, {} ] ",
		`[call id:1 m:a, invalid id:null -32600]`,
	},
	{`[{"jsonrpc":"2.0","method":"a","id":1},`, `-32700`},
	{`[{"jsonrpc":"2.0","method":"a","id":1}`, `-32700`},
	{`[{"jsonrpc":"2.0","method":"a","id":1} 2]`, `-32700`},
	{`[1,]`, `-32700`},
	{`[,1]`, `-32700`},
	{`[`, `-32700`},
	{`[1]]`, `-32700`},
	{
		`[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method"]`,
		`-32700`,
	},

	// Ids given twice in a batch.
	{
		`[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b","id":1},{"jsonrpc":"2.0",` +
			`"method":"c","id":1}]`, `[call id:1 m:a, invalid id:1 -32600, invalid id:1 -32600]`,
	},
	{
		`[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b","id":1.0},` +
			`{"jsonrpc":"2.0","method":"c","id":"1"}]`, `[call id:1 m:a, call id:1.0 m:b, call id:"1" m:c]`,
	},
	{
		`[{"jsonrpc":"2.0","method":"a","id":null},{"jsonrpc":"2.0","method":"b","id":null}]`,
		`[call id:null m:a, call id:null m:b]`,
	},
	{
		`[{"jsonrpc":"2.0","method":1,"id":1},{"jsonrpc":"2.0","method":"b","id":1}]`,
		`[invalid id:1 -32600, call id:1 m:b]`,
	},
	{
		`[{"jsonrpc":"2.0","result":1,"id":1},{"jsonrpc":"2.0","result":2,"id":1}]`,
		`[answer id:1 r:1, answer id:1 r:2]`,
	},
}
