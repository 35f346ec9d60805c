// A lock at Redis, in Java, with what comes with it: javac Lock.java, then java -cp . Lock (or java Lock.java).

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Lock {
    static final String ACQUIRE = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then"
        + " return redis.call('incr', KEYS[1] .. ':token') end return 0";
    static final String RENEW = "if redis.call('get', KEYS[1]) == ARGV[1]"
        + " then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
    static final String RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1]"
        + " then return redis.call('del', KEYS[1]) end return 0";
    static final Map<String, String> ERRORS = new LinkedHashMap<>(Map.of(
        "held by another", "fail", "not held", "fail", "java.net.ConnectException", "fail", "*", "info"));

    static String host, lock, owner;
    static int port, operation;
    static long ttl;
    static Socket socket;

    /** CLOCK_BOOTTIME, which no fault moves, rounded down; System.nanoTime() is not it. */
    static double now() throws IOException {
        return Double.parseDouble(Files.readString(Path.of("/proc/uptime")).split(" ")[0]);
    }

    /** What stands behind a key; the harness sends no space between. A library for JSON does as well. */
    static String field(String line, String key) {
        Matcher found = Pattern.compile("\"" + key + "\":\"?([^,}\"]*)").matcher(line);
        return found.find() ? found.group(1) : "";
    }

    /** Run a script once, on a connection that is kept, with one deadline. */
    static long ask(String script) throws IOException {
        try {
            if (socket == null) {
                Socket made = new Socket();
                made.connect(new InetSocketAddress(host, port), operation);
                made.setSoTimeout(operation);
                made.setTcpNoDelay(true);
                socket = made;
            }
            StringBuilder text = new StringBuilder("*6\r\n");
            for (String word : new String[] {"EVAL", script, "1", lock, owner, Long.toString(ttl)}) {
                text.append("$").append(word.length()).append("\r\n").append(word).append("\r\n");
            }
            socket.getOutputStream().write(text.toString().getBytes(StandardCharsets.UTF_8));
            StringBuilder answer = new StringBuilder();
            for (int each; (each = socket.getInputStream().read()) != '\n'; answer.append((char) each)) {
                if (each < 0) throw new IOException("closed");
            }
            if (answer.charAt(0) != ':') throw new IllegalStateException(answer.toString());
            return Long.parseLong(answer.substring(1).trim());
        } catch (IOException error) {
            if (socket != null) socket.close(); // what comes late must not be taken for the next answer
            socket = null;
            throw error;
        }
    }

    static String failed(String text) {
        String longest = "*";
        for (String key : ERRORS.keySet()) {
            if (text.startsWith(key) && (longest.equals("*") || key.length() > longest.length())) longest = key;
        }
        return "\"type\":\"" + ERRORS.get(longest) + "\",\"error\":\"" + text.replaceAll("[\"\\\\\\p{Cntrl}]", "?") + "\"";
    }

    static String acquire(double wait) throws IOException, InterruptedException {
        owner = UUID.randomUUID().toString();
        for (double end = now() + wait; ; Thread.sleep(50)) {
            double sent = now(); // before the request: from then on the lease may count
            long token = ask(ACQUIRE);
            if (token > 0) return "\"type\":\"ok\",\"token\":" + token + ",\"since\":{\"at\":" + sent + "}";
            if (now() >= end) return failed("held by another");
        }
    }

    static String compared(String script) throws IOException {
        // The script compares the owner: either answer is the service's word.
        return ask(script) != 0 ? "\"type\":\"ok\",\"proves\":true" : failed("not held") + ",\"held\":false";
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String config = lines.readLine();
        Matcher endpoint = Pattern.compile("\"endpoints\":\\[\\[\"([^\"]*)\",(\\d+)").matcher(config);
        if (!endpoint.find()) throw new IllegalArgumentException("no endpoint in " + config);
        host = endpoint.group(1);
        port = Integer.parseInt(endpoint.group(2));
        lock = field(config, "lock");
        ttl = Math.round(Double.parseDouble(field(config, "ttl")) * 1000);
        operation = (int) Math.round(Double.parseDouble(field(config, "operation_seconds")) * 1000);
        StringBuilder errors = new StringBuilder();
        ERRORS.forEach((key, meant) -> errors.append(errors.isEmpty() ? "" : ",").append("\"" + key + "\":\"" + meant + "\""));
        System.out.println("{\"hello\":{\"protocol\":1,\"library\":\"redis by hand\",\"version\":\"1\",\"language\":\"Java "
            + System.getProperty("java.version") + "\",\"renewals\":\"asked\",\"tokens\":true,\"expires\":true,\"errors\":{"
            + errors + "}}}");
        for (String line; (line = lines.readLine()) != null; ) {
            String said;
            try {
                said = switch (field(line, "do")) {
                    case "acquire" -> acquire(Double.parseDouble(field(line, "wait")));
                    case "renew" -> compared(RENEW);
                    default -> compared(RELEASE);
                };
            } catch (IOException | IllegalStateException error) {
                said = failed(error.toString());
            }
            System.out.println("{\"id\":" + field(line, "id") + "," + said + "}");
        }
    }
}
